"""What it takes to trace models of PyTorch, and which come in."""
