"""Times from FLOPs, bytes and the catalogue of devices."""
