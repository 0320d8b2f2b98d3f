"""Models from PyTorch and Hugging Face (an extra): traced without weights, trained, profiled."""
