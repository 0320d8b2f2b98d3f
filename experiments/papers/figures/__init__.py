"""Figures that papers print of the graphs themselves, and of estimates of them."""
