"""What a method is, and all that its author needs: tasks, limits, results, the registry."""
