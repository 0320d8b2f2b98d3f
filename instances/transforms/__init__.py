"""Coarser graphs with plans that expand: fusion, merging, co-placement."""
