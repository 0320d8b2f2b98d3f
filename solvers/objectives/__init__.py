"""What each objective brings to the solvers: a quick bound, and the steps that solve its tasks."""
