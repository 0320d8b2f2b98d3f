"""What happens around a method: first plans, the rule for exact methods."""
