"""Experiments: one module or package each, found by its `EXPERIMENT`; `comparison` is what those with agents share."""
