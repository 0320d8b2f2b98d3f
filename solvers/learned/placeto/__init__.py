"""`placeto`: a graph network that places one node at a time, over and over."""
