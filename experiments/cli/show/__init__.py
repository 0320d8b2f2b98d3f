"""What a model, an instance or a plan is, and how two plans differ."""
