"""The search over pairs of ideals, for at most two kinds of devices."""
