"""Chains of ideals: labels of calls and end times over a lattice."""
