"""Bounds and plans of serving_flow."""
