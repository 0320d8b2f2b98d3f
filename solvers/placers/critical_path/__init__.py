"""Placers that follow the dynamic critical path: D-DPS, FD-DPS, MP-DPS, FastT."""
