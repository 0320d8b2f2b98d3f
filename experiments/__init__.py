"""Studies, their tables and plots, and the command line."""
