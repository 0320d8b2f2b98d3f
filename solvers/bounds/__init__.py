"""Lower bounds by themselves: a value that no plan is below, what proves it, at any size."""
