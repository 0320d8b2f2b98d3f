"""What happens around a method: cheap bounds, first plans, the rule for exact methods."""
