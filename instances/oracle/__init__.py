"""A second referee, which shares no code with the first, and every plan one after the other."""
