"""Other people's files, one importer per format."""
