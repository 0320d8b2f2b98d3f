"""``placegap place``: the command, what it prints at the end, and the model that it writes."""
