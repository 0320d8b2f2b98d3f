"""Files in and out: documents, plans, certificates, importers, exporters, costs, measured times."""
