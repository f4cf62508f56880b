"""Configuration: frozen dataclasses that need nothing heavy to be read."""
