"""Hybrid plans: stages with replicas, tensor parallelism and modes, and the proof."""
