"""Search that moves whole runs and nested parts of the colocation groups between devices."""
