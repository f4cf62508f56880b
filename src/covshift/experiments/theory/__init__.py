"""The study of the exact theory: every claim of the paper, its errata, and what goes past it."""
