"""Bounds for sections of a graph between cuts."""
