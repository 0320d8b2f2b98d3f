"""What we ask of the package ourselves: nothing here is in the wheel, or needed by what is."""
