"""What certificates are made of."""
