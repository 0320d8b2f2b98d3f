"""placegap's own files: instances, plans, clusters, and graphs of networkx."""
