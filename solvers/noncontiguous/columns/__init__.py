"""Column generation: prices, sets that hold little enough, plans from columns."""
