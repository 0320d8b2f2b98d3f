"""Graphs that ship with the package, best-known values, and generators."""
