"""`multilevel`: the disjunctive search on graphs of few parts, then on the graph itself."""
