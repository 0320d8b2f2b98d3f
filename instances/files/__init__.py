"""Placegap's own files: documents, clusters, plans."""
