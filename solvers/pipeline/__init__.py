"""Pipelines: chains of stages for the time of an iteration, its cuts found by branch and bound."""
