"""Ideals as bit sets, their enumeration, and cuts between two."""
