"""Networks of repeated layers: one layer of each kind is solved, and its plan is repeated."""
