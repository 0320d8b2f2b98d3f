"""Ops cut into parts along an axis."""
