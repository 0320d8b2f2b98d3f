"""Times of a traced model's ops, measured on the device at hand."""
