"""What placegap costs: `python -m placegap.experiments.bench`."""
