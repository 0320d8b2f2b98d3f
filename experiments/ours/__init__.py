"""Studies of our own: what no paper's table asks, from one command each, with committed results."""
