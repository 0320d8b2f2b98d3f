"""Methods that are a formulation and its solver: no algorithm of their own."""
