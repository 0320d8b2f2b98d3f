"""Learned placers beside random search and annealing, at equal numbers of placements."""
