"""Processes and limits: the pool of workers, and placing one instance."""
