"""Training graphs from PyTorch: forward, backward and optimizer ops of one step."""
