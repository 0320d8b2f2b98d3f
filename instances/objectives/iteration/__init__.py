"""One training iteration of a pipeline: its rules, referees and checks."""
