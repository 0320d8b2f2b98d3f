"""A plan as people see it: what runs when, why it takes so long, and what to change next."""
