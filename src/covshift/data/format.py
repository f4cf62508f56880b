"""The dataset on disk: a manifest, checksums, a dictionary, and Arrow shards.

A row is a state. An episode of T steps has T + 1 rows: row t holds the observation s_t, how it was
arrived at (reward, terminated, truncated, life_lost; is_initial for the first), and what was done there
(action, mu, policy). The last row of an episode has action -1 and mu NaN.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from covshift.data.frames import FrameCodec
from covshift.errors import InputError
from covshift.files import whole_file

FORMAT_VERSION = 1
MANIFEST, DICTIONARY = "manifest.json", "dictionary.zstd"
SHARD_TRANSITIONS = 262_144
"""A shard ends with the first episode after this many."""

EPISODES_PER_SHARD = 1_000_000
"""Episode k of shard i has the number i · 1 000 000 + k."""

COLUMNS: dict[str, pa.DataType] = {
    "action": pa.int16(),
    "mu": pa.float32(),
    "policy": pa.int16(),
    "reward": pa.float32(),
    "terminated": pa.bool_(),
    "truncated": pa.bool_(),
    "life_lost": pa.bool_(),
    "is_initial": pa.bool_(),
    "episode": pa.int64(),
    "stream": pa.int16(),
}
"""Every column but the observation."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in memory.

    Attributes:
        columns: an array for each name of `COLUMNS`.
        observations: the stored bytes of each row.
    """

    columns: dict[str, NDArray[Any]]
    observations: list[bytes]

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def num_transitions(self) -> int:
        """Rows with an action."""
        return int((self.columns["action"] >= 0).sum())

    def cut(self, num_transitions: int) -> Rows:
        """The first rows that hold `num_transitions`; an episode that is cut is marked truncated."""
        taken = np.cumsum(self.columns["action"] >= 0)
        last = int(np.searchsorted(taken, num_transitions)) + 1
        columns = {name: values[: last + 1].copy() for name, values in self.columns.items()}
        columns["action"][-1], columns["mu"][-1] = -1, np.nan
        columns["truncated"][-1] |= not columns["terminated"][-1]
        return Rows(columns, self.observations[: last + 1])


def stack_rows(parts: Iterable[Rows]) -> Rows:
    """Rows one after the other."""
    listed = list(parts)
    columns = {name: np.concatenate([part.columns[name] for part in listed]) for name in COLUMNS}
    return Rows(columns, [blob for part in listed for blob in part.observations])


def shard_name(index: int) -> str:
    """The file of a shard."""
    return f"shard-{index:05d}.arrow"


def write_shard(path: Path, rows: Rows, codec: FrameCodec) -> None:
    """Writes a shard whole or not at all."""
    kind = pa.large_binary()
    if codec.encoding != "zstd":
        kind = pa.binary(len(rows.observations[0]))
    fields = [pa.field(name, kind_, nullable=False) for name, kind_ in COLUMNS.items()]
    schema = pa.schema([*fields, pa.field("observation", kind, nullable=False)])
    arrays = [
        pa.array(rows.columns[name], type=kind_, from_pandas=False)
        for name, kind_ in COLUMNS.items()
    ]
    batch = pa.record_batch([*arrays, pa.array(rows.observations, type=kind)], schema=schema)
    with (
        whole_file(path, durable=True) as partial,
        pa.OSFile(str(partial), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        writer.write_batch(batch)


def read_batch(path: Path) -> pa.RecordBatch:
    """The shard's rows, memory-mapped."""
    try:
        with pa.memory_map(str(path), "rb") as source:
            reader = pa.ipc.open_file(source)
            if reader.num_record_batches != 1:
                raise InputError(
                    f"{path} has {reader.num_record_batches} batches, but one is needed"
                )
            return reader.get_batch(0)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path} is no shard of a dataset: {error}") from error


def read_rows(path: Path) -> Rows:
    """The shard's rows, copied into memory."""
    batch = read_batch(path)
    columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS}
    return Rows({n: v.copy() for n, v in columns.items()}, batch.column("observation").to_pylist())


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished dataset."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(f"{folder} is no covshift dataset: it has no {MANIFEST}")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(manifest, dict):
        raise InputError(f"{path} is no manifest: it holds {type(manifest).__name__}")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {manifest.get('format_version')}, but this covshift reads "
            f"{FORMAT_VERSION}"
        )
    if "shards" not in manifest:
        raise InputError(f"{folder} is not finished: run the command that made it once more")
    missing = {"request", "observation", "num_actions", "totals"} - set(manifest)
    if missing:
        raise InputError(f"{path} lacks {', '.join(sorted(missing))}")
    return manifest


def manifest_differences(there: dict[str, Any], here: dict[str, Any]) -> dict[str, str]:
    """Where another manifest is not what this one says, such as {"seed": "0 there, 1 here"}.

    Entries that only the other one has, such as its shards, do not count.
    """
    wanted = json.loads(json.dumps(here))
    theirs = _flat({key: there.get(key) for key in wanted})
    ours = _flat(wanted)
    return {
        key.removeprefix("request."): f"{_told(theirs, key)} there, {_told(ours, key)} here"
        for key in sorted(theirs | ours)
        if (key in theirs, theirs.get(key)) != (key in ours, ours.get(key))
    }


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        name = f"{prefix}{key}"
        flat |= _flat(entry, f"{name}.") if isinstance(entry, dict) else {name: entry}
    return flat


def _told(flat: dict[str, Any], key: str) -> str:
    return json.dumps(flat[key]) if key in flat else "none"


def read_codec(folder: Path, manifest: dict[str, Any]) -> FrameCodec:
    """The codec of a dataset's observations."""
    observation = manifest["observation"]
    dictionary = folder / DICTIONARY
    return FrameCodec(
        tuple(observation["shape"]),
        np.dtype(observation["dtype"]),
        dictionary.read_bytes() if dictionary.is_file() else None,
    )
