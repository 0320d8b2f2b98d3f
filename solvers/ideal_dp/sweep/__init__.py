"""One pass over all ideals."""
