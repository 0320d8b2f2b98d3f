"""Models from PyTorch and Hugging Face: traced without weights, read as graphs."""
