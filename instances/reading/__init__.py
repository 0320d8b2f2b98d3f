"""What every reader of a file needs: errors in one line, limits, JSON, YAML, compressed files."""
