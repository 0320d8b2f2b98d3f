"""Tables of the documentation, each printed by a command of its own."""
