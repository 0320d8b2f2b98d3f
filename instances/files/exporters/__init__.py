"""Plans in the formats of the tools that run them."""
