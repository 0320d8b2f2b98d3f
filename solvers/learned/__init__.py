"""`hrl` and `placeto`: placers that learn from simulated placements, by policy gradient."""
