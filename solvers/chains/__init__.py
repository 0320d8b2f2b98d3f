"""What cutting an order of blocks into slices needs."""
