"""Chains of ideals: `ideal-dp`, and cutting an order of blocks into slices."""
