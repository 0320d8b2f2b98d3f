"""Heuristic placers, by family."""
