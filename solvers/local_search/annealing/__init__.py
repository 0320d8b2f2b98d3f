"""`annealing`: moves of ops and their schedules."""
