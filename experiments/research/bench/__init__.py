"""What placegap costs: `python -m placegap.experiments.research.bench`."""
