"""Every random stream of a run, derived by name from one seed."""

from __future__ import annotations

import zlib

import numpy as np

from covshift.validation import check_seed


def named_generator(seed: int, name: str, *keys: int) -> np.random.Generator:
    """A generator that depends on the seed, the stream's name and its numbers alone."""
    stream = (zlib.crc32(name.encode()), *keys)
    return np.random.default_rng(np.random.SeedSequence(check_seed(seed), spawn_key=stream))
