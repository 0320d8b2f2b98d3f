"""Certificates: the files, and checkers that stand alone."""
