"""The makespan of one pass: its rules, referees and checks."""
