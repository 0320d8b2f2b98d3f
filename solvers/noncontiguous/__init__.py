"""`noncontiguous`: max_load for plans of any kind."""
