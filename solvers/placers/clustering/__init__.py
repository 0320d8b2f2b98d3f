"""Placers that cluster ops first: LC, DSC, Celeritas, Order-Place."""
