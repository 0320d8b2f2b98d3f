"""Loads of devices: their rules, referees and checks."""
