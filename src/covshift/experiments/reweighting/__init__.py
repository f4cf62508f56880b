"""Ours: resampling by the ratio against multiplying the loss by it."""
