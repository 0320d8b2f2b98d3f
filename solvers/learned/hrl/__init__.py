"""`hrl`: a grouper of ops and a placer of groups, trained together."""
