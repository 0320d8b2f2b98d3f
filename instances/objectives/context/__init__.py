"""Tokens that fit on every device: its rules, referees and checks."""
