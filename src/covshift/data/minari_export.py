"""Writes a Minari dataset in a process of its own: HDF5 ends its process if it cannot close a file, as on a full disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from gymnasium import spaces

from covshift.data.dataset import Dataset, open_dataset
from covshift.data.manifest import Kept
from covshift.errors import InputError

_REFUSED = 2
"""Status of the process if the message is a finished sentence."""


def write_apart(folder: Path, name: str) -> None:
    """Writes a dataset as the Minari dataset `name`, in another process that ends with this one.

    Raises:
        InputError: it could not be written, or not all of it.
    """
    with subprocess.Popen(
        [sys.executable, "-m", "covshift.data.minari_export", str(folder), name],
        stdin=subprocess.PIPE,  # Never written to; it is closed with this process.
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        try:
            text = process.stderr.read().decode(errors="replace")
            status = process.wait()
        except BaseException:
            process.kill()
            raise
    if status:
        reasons = re.findall(r"error message = '([^']*)'", text)  # As HDF5 says it.
        reasons += text.strip().splitlines()[-1:] or [f"it ended with status {status}"]
        raise InputError(
            reasons[0]
            if status == _REFUSED
            else f"Minari cannot write the dataset '{name}': {reasons[0]}"
        )


def main() -> None:
    """Writes the dataset that the arguments name."""
    Thread(target=_end_with_parent, daemon=True).start()
    folder, name = sys.argv[1:]
    try:
        _write(open_dataset(Path(folder)), name)
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(_REFUSED)


def _end_with_parent() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _write(dataset: Dataset, name: str) -> None:
    import minari

    shape, dtype = dataset.store.codec.shape, dataset.store.codec.dtype
    if dtype == np.bool_:
        observations: Any = spaces.MultiBinary(shape)
    else:
        limits = np.iinfo(dtype) if dtype.kind in "iu" else np.finfo(dtype)
        observations = spaces.Box(limits.min, limits.max, shape, dtype.type)
    with warnings.catch_warnings():
        # Minari warns of each optional field that is left out: permalink, author, e-mail, environment.
        warnings.simplefilter("ignore", UserWarning)
        minari.create_dataset_from_buffers(
            name,
            buffer=_buffers(dataset),
            observation_space=observations,
            action_space=spaces.Discrete(dataset.store.num_actions),
            data_format="hdf5",
            jpeg_encoding=False,
            algorithm_name="covshift",
            description=json.dumps({key: dataset.manifest[key] for key in Kept.__annotations__}),
        )


def _buffers(dataset: Dataset) -> Iterator[Any]:
    """Minari's episodes, one in memory at a time."""
    from minari.data_collector import EpisodeBuffer

    for number, episode in enumerate(dataset):
        is_last = np.arange(len(episode)) == len(episode) - 1
        yield EpisodeBuffer(
            id=number,
            observations=episode.observations,
            actions=episode.actions,
            rewards=episode.rewards,
            terminations=is_last & episode.terminated,
            truncations=is_last & episode.truncated,
            infos=episode.other | {"mu": np.append(np.asarray(episode.mu), np.float32(0))},
        )


if __name__ == "__main__":
    main()
