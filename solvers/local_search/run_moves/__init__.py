"""Search that moves whole runs of the order of colocation groups between devices."""
