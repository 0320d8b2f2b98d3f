"""The tables that papers printed, beside ours, with the distance to the best proven bound."""
