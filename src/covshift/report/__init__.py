"""Plots and pages; reads records only and never imports torch."""
