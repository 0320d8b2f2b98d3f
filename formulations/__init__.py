"""Optimization models of the papers, built from an instance."""
