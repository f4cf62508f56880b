"""Rows and shards: what a dataset stores of each state, in memory and as Arrow files.

A row is a state. An episode of T steps has T + 1 rows: row t holds the observation s_t, how the agent arrived there
(reward, terminated, truncated, life_lost; is_initial for the first row), and what it did there (action, mu, policy).
The last row of an episode has action -1 and mu NaN.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from covshift.data.codec import FrameCodec
from covshift.errors import InputError
from covshift.files import ordinary_file, sha256, whole_file, write_digest

SHARD_TRANSITIONS = 262_144
"""A shard ends with the first episode after this many transitions."""

EPISODES_PER_SHARD = 1_000_000
"""Episode k of shard i has the number i · 1 000 000 + k."""

MOST_ACTIONS = 2**15
"""The column of actions has 16 bits."""

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
"""Every column except the observation."""


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows in memory.

    Attributes:
        columns: an array for each name of `COLUMNS`.
        observations: the stored bytes of each row's observation.
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
        """The first rows that hold `num_transitions`; an episode that is cut is marked as truncated."""
        taken = np.cumsum(self.columns["action"] >= 0)
        last = int(np.searchsorted(taken, num_transitions)) + 1
        columns = {name: values[: last + 1].copy() for name, values in self.columns.items()}
        columns["action"][-1], columns["mu"][-1] = -1, np.nan
        columns["truncated"][-1] |= not columns["terminated"][-1]
        return Rows(columns, self.observations[: last + 1])


def stack_rows(parts: Iterable[Rows]) -> Rows:
    """The rows of all parts, in order."""
    listed = list(parts)
    columns = {name: np.concatenate([part.columns[name] for part in listed]) for name in COLUMNS}
    return Rows(columns, [blob for part in listed for blob in part.observations])


def shard_name(index: int) -> str:
    """The file name of a shard."""
    return f"shard-{index:05d}.arrow"


def write_shard(path: Path, rows: Rows, codec: FrameCodec) -> None:
    """Writes a shard and, beside it, its hash; a crash leaves no part of it behind."""
    kind = pa.large_binary()
    if codec.encoding != "zstd":
        kind = pa.binary(len(rows.observations[0]))
    kinds = COLUMNS | {"observation": kind}
    schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])
    values = rows.columns | {"observation": rows.observations}
    arrays = [pa.array(values[name], type=kind, from_pandas=False) for name, kind in kinds.items()]
    with whole_file(path, durable=True) as partial:
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            writer.write_batch(pa.record_batch(arrays, schema=schema))
        # Before the shard has its name: a shard without its hash counts as not written.
        write_digest(path, sha256(partial))


def read_batch(path: Path) -> pa.RecordBatch:
    """The rows of a shard, memory-mapped.

    Raises:
        InputError: the file is not a shard: its columns or types are others, or its parts do not fit together.
    """
    ordinary_file(path)
    try:
        with pa.memory_map(str(path), "rb") as source:
            reader = pa.ipc.open_file(source)
            if reader.num_record_batches != 1:
                raise InputError(
                    f"{path} has {reader.num_record_batches} record batches, but a shard has one"
                )
            _check_columns(path, reader.schema)
            if _is_compressed(source):
                raise InputError(f"{path} is compressed as a whole, which shards never are")
            batch = reader.get_batch(0)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, struct.error, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} is not a shard of a dataset: {reason}") from error
    if not len(batch) or any(column.null_count for column in batch.columns):
        raise InputError(f"{path} is not a shard of a dataset: it has no rows, or lacks values")
    return batch


def _check_columns(path: Path, schema: pa.Schema) -> None:
    kinds = dict(zip(schema.names, schema.types, strict=True))
    stored = kinds.pop("observation", None)
    is_bytes = stored == pa.large_binary() or isinstance(stored, pa.FixedSizeBinaryType)
    if kinds != COLUMNS or not is_bytes or len(schema) != len(COLUMNS) + 1:
        raise InputError(f"{path} is not a shard of a dataset: its columns are {schema.names}")


def _is_compressed(source: pa.MemoryMappedFile) -> bool:
    """Whether the bodies of the file's record batches are compressed, which its schema does not tell.

    Arrow would unpack them into memory, however much that takes. The message before a batch is a flatbuffer: the
    table `Message` has the table `RecordBatch` as its third field, and that has `compression` as its fourth.
    """
    source.seek(8)  # After the magic bytes a file holds the same messages as a stream.
    messages = pa.ipc.MessageReader.open_stream(source)
    while (message := messages.read_next_message()).type != "record batch":
        pass
    data = message.metadata.to_pybytes()

    def field(table: int, index: int) -> int:
        """Where a field of a table is stored; 0 if the table lacks it."""
        vtable = table - struct.unpack_from("<i", data, table)[0]
        size = struct.unpack_from("<H", data, vtable)[0]
        at = 4 + 2 * index
        offset = struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0
        return table + offset if offset else 0

    def follow(position: int) -> int:
        """The table that a stored offset leads to."""
        return int(position + struct.unpack_from("<I", data, position)[0])

    batch = follow(field(follow(0), 2))
    return field(batch, 3) != 0


def batch_columns(batch: pa.RecordBatch) -> dict[str, NDArray[Any]]:
    """Every column of a shard except the observation; numbers are views of the file."""
    return {name: batch.column(name).to_numpy(zero_copy_only=False) for name in COLUMNS}


def read_rows(path: Path) -> Rows:
    """The rows of a shard, copied into memory."""
    batch = read_batch(path)
    columns = {name: values.copy() for name, values in batch_columns(batch).items()}
    return Rows(columns, batch.column("observation").to_pylist())


def count_shard(path: Path) -> dict[str, int]:
    """How many rows, transitions and episodes a shard has."""
    batch = read_batch(path)
    initial = batch.column("is_initial").to_numpy(zero_copy_only=False)
    return {
        "rows": len(batch),
        "transitions": int((batch.column("action").to_numpy() >= 0).sum()),
        "episodes": int(initial.sum()),
    }
