"""A folder for each objective: its rules, two referees, and what an instance must state."""
