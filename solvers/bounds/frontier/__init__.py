"""Memory along the order of the colocation groups: a bound, and plans, from labels of frontiers."""
