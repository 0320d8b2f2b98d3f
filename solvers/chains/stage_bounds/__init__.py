"""Bounds on the max_load of chains where the ideals are too many: what stages can reach."""
