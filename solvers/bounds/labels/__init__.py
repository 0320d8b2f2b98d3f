"""Bounds from labels: paths through sections and layers, and their dominance."""
