"""Families of variables and rows that several papers use."""
