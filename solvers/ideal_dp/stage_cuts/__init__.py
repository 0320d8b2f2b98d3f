"""`stage-cuts`: the best chain of stages for the iteration time of a pipeline."""
