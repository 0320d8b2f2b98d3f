"""Bounds of a chain together with the work beside it."""
