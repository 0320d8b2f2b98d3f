"""Every plan, one after the other: the oracle of the tests."""
