"""`auto`, the default method: fast placers, bounds, proofs and search side by side."""
