"""Experiments: one folder a study, data and analysis."""
