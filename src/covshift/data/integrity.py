"""What must hold of a dataset before it is used: its files have their checksums, its rows form whole episodes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.data.manifest import DICTIONARY, MANIFEST
from covshift.errors import InputError
from covshift.files import CHECKSUMS, ordinary_file, read_checksums, sha256


def check_files(folder: Path, manifest: dict[str, Any]) -> None:
    """Compares every file of a dataset with its checksum.

    A process hashes a file once, and again if its size or its time changes.

    Raises:
        InputError: a file is missing, damaged, or lies elsewhere; names the first.
    """
    listed = read_checksums(folder)
    for name in needed_files(manifest):
        if name not in listed:
            raise InputError(f"{folder / CHECKSUMS} does not list {name}")
        path = ordinary_file(folder / name)
        state = path.stat()
        if _hash_once(path.resolve(), state.st_size, state.st_mtime_ns) != listed[name]:
            raise InputError(damaged(path))


def needed_files(manifest: dict[str, Any]) -> list[str]:
    """The names of the files that a finished dataset must have, beside its checksums."""
    dictionary = [DICTIONARY] if manifest["observation"]["encoding"] == "zstd" else []
    return [MANIFEST, *dictionary, *(shard["file"] for shard in manifest["shards"])]


def damaged(path: Path) -> str:
    """The sentence about a file whose checksum is another."""
    return (
        f"{path} is damaged: its checksum differs from that in {CHECKSUMS}; "
        "restore it from a copy, or make the dataset again"
    )


@lru_cache(maxsize=100_000)
def _hash_once(path: Path, size: int, changed: int) -> str:
    return sha256(path)


def row_fault(columns: dict[str, NDArray[Any]], num_actions: int) -> str | None:
    """What is wrong with rows that should form whole episodes; None if they do.

    Args:
        columns: the columns of successive rows that start with an episode's first row.
        num_actions: number of actions of the environment.
    """
    action, mu, reward = columns["action"], columns["mu"], columns["reward"]
    initial, terminated, truncated = (
        columns[name] for name in ("is_initial", "terminated", "truncated")
    )
    last = action < 0
    if not initial[0] or (initial[1:] != last[:-1]).any():
        return "an episode does not start where the one before it ends"
    ended = terminated | truncated
    if (ended[~last]).any() or not ended[last].all() or (terminated & truncated).any():
        return "an episode is not either terminated or truncated at its last row, and only there"
    if (action < -1).any() or (action >= num_actions).any():
        return f"an action lies outside 0 … {num_actions - 1}"
    if not np.isnan(mu[last]).all() or not ((mu[~last] > 0) & (mu[~last] <= 1)).all():
        return "the probability of an action lies outside (0, 1]"
    if not np.isfinite(reward).all() or reward[initial].any():
        return "a reward is not a finite number, or stands in an episode's first row"
    for name in ("episode", "stream"):
        if (np.diff(columns[name]) != 0)[~initial[1:]].any():
            return f"the column {name} changes within an episode"
    return None
