"""Plans in other tools' formats."""
