"""Plans that are searched while they are built: a horizon that rolls over the order of ops."""
