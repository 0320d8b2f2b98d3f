"""How plans of each objective are shown: a module each, which `base` finds by its folder's name."""
