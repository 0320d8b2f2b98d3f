"""From measurements to times: the standard evaluation of Celeritas."""
