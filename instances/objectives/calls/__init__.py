"""One pass whose accelerators run whole subgraphs: its rules, referees and checks."""
