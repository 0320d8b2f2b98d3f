"""What docs/ shows of committed results, made anew in seconds."""
