"""GETF: the LP of its bound, its groups of devices, and a MILP."""
