"""Published architectures, one module per family of networks."""
