"""A second referee, which shares no code with the first."""
