"""`auto`, the default method: the method that proves most, and a search for plans beside it."""
