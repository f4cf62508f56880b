"""Logged experience: collect it, store it, draw from it."""
