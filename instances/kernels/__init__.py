"""Kernels: compiled when it pays, and kept on disk."""
