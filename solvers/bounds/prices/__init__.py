"""Prices of bytes: of what lies beside a chain, and of the room on devices."""
