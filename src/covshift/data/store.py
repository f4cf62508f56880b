"""The rows of a dataset by number, for sampling: their columns in memory, their observations decoded when read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.codec import FrameCodec
from covshift.data.format import COLUMNS, Rows, batch_columns, read_batch
from covshift.data.growing_array import GrowingArray
from covshift.data.integrity import check_files, row_fault
from covshift.data.manifest import read_codec, read_manifest
from covshift.data.observations import Observations
from covshift.errors import InputError


@final
class Store:
    """Rows of a dataset, numbered in the order in which they were appended.

    A row is a state. It becomes part of the store once its outcome is known: the newest row of an episode that
    is still running is held back until the next one arrives. So a row of the store never changes, and every
    row except an episode's last is a transition. The columns take about 30 bytes of memory per row; the
    observations of shards stay on disk. Appending takes constant time per row.

    Args:
        codec: codec of the observations.
        stack: how many of the newest observations make a state.
        num_actions: number of actions of the environment.

    Attributes:
        state_shape: shape of a state: of a stack of frames, or of an observation.
        columns: an array over all rows for each column; a view of the rows so far, like the next two.
        is_transition: which rows have an action.
        is_state: which rows are states to act in: all except the terminal ones.
    """

    columns: dict[str, NDArray[Any]]
    is_transition: NDArray[np.bool_]
    is_state: NDArray[np.bool_]

    def __init__(self, codec: FrameCodec, stack: int, num_actions: int) -> None:
        self.codec, self.stack, self.num_actions = codec, stack, num_actions
        self.state_shape = (stack, *codec.shape) if stack > 1 else codec.shape
        self._observations = Observations(codec, stack)
        self._columns = {
            name: GrowingArray(kind.to_pandas_dtype()) for name, kind in COLUMNS.items()
        }
        self._has_action, self._is_state = GrowingArray(np.bool_), GrowingArray(np.bool_)
        self._ages = GrowingArray(np.uint8)
        self._update_views()

    @classmethod
    def open(cls, folder: Path | str) -> Store:
        """The store of a finished dataset, whose files are first compared with their checksums.

        Raises:
            InputError: there is no dataset, it is not finished, or it is damaged.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        check_files(folder, manifest)
        return cls.of_shards(
            [folder / shard["file"] for shard in manifest["shards"]],
            read_codec(folder, manifest),
            manifest["observation"]["stack"],
            manifest["num_actions"],
        )

    @classmethod
    def of_shards(cls, paths: list[Path], codec: FrameCodec, stack: int, num_actions: int) -> Store:
        """The store of these shards; the list may be empty, and may name a shard several times."""
        store = cls(codec, stack, num_actions)
        batches = {path: read_batch(path) for path in dict.fromkeys(paths)}
        size = sum(len(batches[path]) for path in paths)
        for array in (*store._columns.values(), store._has_action, store._is_state, store._ages):
            array.reserve(size)
        for path in paths:
            store._append_batch(path, batches[path])
        return store

    def append_shard(self, path: Path) -> None:
        """Appends the rows of a shard; its observations stay in the memory-mapped file.

        Raises:
            InputError: the shard does not hold whole episodes, or an episode of this store is still running.
        """
        self._append_batch(path, read_batch(path))

    def append(self, rows: Rows) -> None:
        """Appends rows that are in memory: whole episodes, or a part of one that continues with the next call.

        A row is appended once its action is known; an episode's last row has none.

        Raises:
            InputError: the rows do not continue where the last ones ended.
        """
        if len(rows):
            self._check_follows("the rows", rows.columns)
            self._observations.append(rows.observations)
            self._append_columns(rows.columns)

    def __len__(self) -> int:
        return len(self.is_state)

    @property
    def is_running(self) -> bool:
        """Whether the newest episode has not ended yet, so that its newest row is held back."""
        action = self._columns["action"].rows
        return bool(len(action) and action[-1] >= 0)

    @property
    def known(self) -> dict[str, NDArray[Any]]:
        """The columns over all rows and the row that is held back, which says what the newest action led to."""
        return {name: array.rows for name, array in self._columns.items()}

    def states(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The states at these rows."""
        ids = _checked(ids, len(self))
        return self._observations.states(ids, self._ages.rows[ids])

    def known_states(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """As `states`; the row that is held back may be among them."""
        ages = self._ages.rows
        ids = _checked(ids, len(ages))
        return self._observations.states(ids, ages[ids])

    def pairs(
        self, first: NDArray[np.int64], second: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The states at two rows each, fastest where the second follows the first.

        The second may be the row that is held back.
        """
        ages = self._ages.rows
        first, second = _checked(first, len(self)), _checked(second, len(ages))
        return self._observations.pairs(first, ages[first], second, ages[second])

    def predecessors(
        self, ids: NDArray[np.int64], *, restart: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The row that led to each row, and which rows have none because they start an episode.

        Args:
            ids: row numbers.
            restart: the last action of an episode leads to the first state of the next one of the same stream.
        """
        column = self.columns
        initial = column["is_initial"][ids]
        before = ids - 1
        if restart:
            last = np.maximum(before, 0)
            follows = initial & (ids >= 2) & column["terminated"][last]
            follows &= column["stream"][last] == column["stream"][ids]
            follows &= column["episode"][last] + 1 == column["episode"][ids]
            before, initial = np.where(follows, ids - 2, before), initial & ~follows
        return before, initial

    def observations(self, ids: NDArray[np.int64]) -> NDArray[Any]:
        """The observations at these rows: single frames, also where states are stacks."""
        return self._observations.singles(_checked(ids, len(self)))

    def observation(self, row: int) -> NDArray[Any]:
        """The decoded observation of one row, flat and of whatever size it is."""
        return self._observations.stored(row)

    @property
    def is_end(self) -> NDArray[np.bool_]:
        """Which rows are states that no other state of their episode follows."""
        size = len(self)
        leads_to_end = np.ones(size, dtype=bool)
        after = self.known["terminated"][1 : size + 1]
        leads_to_end[: len(after)] = after
        return self.is_state & (leads_to_end | ~self.is_transition)

    def initial_share(self) -> float:
        """The share of states that start an episode."""
        return float((self.columns["is_initial"] & self.is_state).sum() / self.is_state.sum())

    def check_valid(self) -> None:
        """Raises AssertionError unless the rows form successive episodes; the last may be running."""
        column = self.known
        last, initial = column["action"] < 0, column["is_initial"]
        assert len(self) == len(last) - self.is_running
        assert len(self._observations) == len(last)
        fault = row_fault(column, self.num_actions) if len(last) else None
        assert fault is None, fault
        assert (np.diff(column["episode"]) >= 0).all(), "the numbers of episodes fall"
        np.testing.assert_array_equal(self._has_action.rows, ~last)
        np.testing.assert_array_equal(self._is_state.rows, ~column["terminated"])
        np.testing.assert_array_equal(self._ages.rows, _ages(initial, 0))

    def _append_batch(self, path: Path, batch: Any) -> None:
        columns = batch_columns(batch)
        self._check_follows(str(path), columns)
        if columns["action"][-1] >= 0:
            raise InputError(f"{path} ends within an episode, but a shard holds whole ones")
        if fault := row_fault(columns, self.num_actions):
            raise InputError(f"{path}: the rows do not form whole episodes ({fault})")
        self._check_width(path, batch.column("observation").type)
        self._observations.append_shard(batch.column("observation"))
        self._append_columns(columns)

    def _check_width(self, path: Path, kind: Any) -> None:
        width = getattr(kind, "byte_width", None) if self.codec.encoding != "zstd" else -1
        if width not in (-1, self.codec.stored_bytes):
            raise InputError(
                f"{path} stores observations of {width} bytes, but {self.codec.stored_bytes} are needed"
            )

    def _check_follows(self, name: str, columns: dict[str, NDArray[Any]]) -> None:
        if self.is_running and columns["is_initial"][0]:
            raise InputError(
                f"{name} start an episode, but episode {self._columns['episode'].rows[-1]} is still "
                "running: append the rest of its rows first"
            )
        if not (self.is_running or columns["is_initial"][0]):
            raise InputError(f"{name} start within an episode whose first rows are missing")

    def _append_columns(self, columns: dict[str, NDArray[Any]]) -> None:
        age = int(self._ages.rows[-1]) + 1 if self.is_running else 0
        self._ages.extend(_ages(columns["is_initial"], age))
        self._has_action.extend(columns["action"] >= 0)
        self._is_state.extend(~columns["terminated"])
        for name, array in self._columns.items():
            array.extend(columns[name])
        self._update_views()

    def _update_views(self) -> None:
        size = len(self._ages) - self.is_running
        self.columns = {name: array.rows[:size] for name, array in self._columns.items()}
        self.is_transition = self._has_action.rows[:size]
        self.is_state = self._is_state.rows[:size]


def _checked(ids: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    rows = np.asarray(ids, dtype=np.int64)
    if rows.size and not (rows.min() >= 0 and rows.max() < size):
        bad = rows.min() if rows.min() < 0 else rows.max()
        raise InputError(f"row {bad} is not among the store's {size} rows")
    return rows


def _ages(is_initial: NDArray[np.bool_], before: int) -> NDArray[np.uint8]:
    """How many rows of its episode come before each row, at most 255.

    Args:
        is_initial: whether each of the new rows starts an episode.
        before: how many rows of the first row's episode came earlier.
    """
    rows = np.arange(len(is_initial))
    start = np.maximum.accumulate(np.where(is_initial, rows, -before))
    return np.minimum(rows - start, 255).astype(np.uint8)
