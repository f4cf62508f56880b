"""Ours: effective sample size and overfitting against replay size and tempering."""
