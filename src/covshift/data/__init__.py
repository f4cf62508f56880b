"""Logged experience: format, collection, store, samplers, import and export."""

from covshift.data.dataset import Dataset, Episode, open_dataset

__all__ = ["Dataset", "Episode", "open_dataset"]
