"""Families of variables and rows that several papers use."""

NO_SOLUTION = "the model holds no solution to extract: none was found, or it was not solved yet"
