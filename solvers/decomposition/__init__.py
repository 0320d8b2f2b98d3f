"""`decomposition`: sections between cuts, solved apart and joined."""
