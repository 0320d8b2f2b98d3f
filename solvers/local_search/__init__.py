"""`disjunctive-search`: orders on devices and channels, improved move by move."""
