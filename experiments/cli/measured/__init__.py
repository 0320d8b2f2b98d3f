"""Commands that measure on this machine."""
