"""Figures 5, 7 and 8: states of the data by their ratio."""
