"""A batch in a hybrid pipeline: its rules, referees and checks."""
