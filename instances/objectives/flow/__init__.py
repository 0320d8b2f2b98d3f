"""Tokens per second of machines that hold ranges of layers: its rules, referees and checks."""
