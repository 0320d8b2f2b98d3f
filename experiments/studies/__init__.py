"""Studies from YAML: what to run, the log of runs, gap tables."""
