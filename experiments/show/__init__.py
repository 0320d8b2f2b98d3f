"""Numbers, tables and pictures as people read them."""
