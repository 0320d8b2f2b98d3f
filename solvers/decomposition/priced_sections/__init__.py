"""A chain of sections where each byte has a price: what placements of its ops cost at least."""
