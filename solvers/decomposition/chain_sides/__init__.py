"""chain-sides: the sides of a bound as plans."""
