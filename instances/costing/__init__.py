"""Times from FLOPs, bytes and what is known of devices."""
