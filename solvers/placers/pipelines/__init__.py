"""Placers for throughput: greedy, local search, slices, PipeDream."""
