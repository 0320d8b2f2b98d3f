"""A pipeline plan of a PyTorch module, executed by processes of this machine."""
