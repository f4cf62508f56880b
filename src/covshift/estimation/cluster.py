"""Sums over the data as Ray tasks, one per shard of a dataset or file of a Parquet folder.

A task reads its own part of the data, so that a cluster must share the folder. If a node is lost, Ray starts its tasks again
on another one. What is not a sum, such as products of ρ, is computed in the process that asks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.manifest import read_codec, read_manifest
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation.columns import is_table_file
from covshift.estimation.experience import Experience
from covshift.estimation.frames import from_frame
from covshift.estimation.inputs import as_logs, from_store
from covshift.estimation.labels import Labels
from covshift.estimation.logs import Logs
from covshift.extras import ray_session, require

_RETRIES = 3


@contextmanager
def logs_on_ray(data: Path | str, *, address: str | None = None, **names: Any) -> Iterator[Logs]:
    """Logs of a folder whose sums are computed by Ray tasks, within the block.

    Args:
        data: a dataset's folder, or a folder of Parquet files that hold whole trajectories, one row per transition.
        address: a cluster's address; None starts Ray on this machine, unless the program already has.
        names: names of columns and of actions, as in `as_logs`.

    Raises:
        InputError: Ray is not installed, or the data do not consist of such parts.

    Example:
        >>> from covshift.estimation.cluster import logs_on_ray
        >>> with logs_on_ray("nothing-here"):  # doctest: +ELLIPSIS
        ...     pass
        Traceback (most recent call last):
            ...
        covshift.errors.InputError: ...
    """
    require("ray")
    logs = as_logs(data, **names)
    folder = Path(data).resolve()
    if not folder.is_dir():
        raise InputError(
            f"{data} has no parts for Ray tasks: give a dataset's folder, or a folder of Parquet files"
        )
    sources, sizes = (
        _parquet_parts(folder, logs, names) if is_table_file(folder) else _shards(folder)
    )
    ends = np.cumsum(sizes)
    if ends[-1] != logs.num_transitions:
        raise InputError(
            f"the files of {data} have {ends[-1]:,} rows for {logs.num_transitions:,} transitions: give each row its next state"
        )
    for end, source in zip(ends[:-1], sources[1:], strict=True):
        if logs.trajectory[end] == logs.trajectory[end - 1]:
            raise InputError(
                f"{source.name} continues a trajectory of the file before it: each file must hold whole trajectories"
            )
    bounds = [0, *(logs.trajectory[ends - 1] + 1).tolist()]
    with ray_session(address) as ray:
        yield replace(logs, mapper=RayMapper(ray, sources, [*itertools.pairwise(bounds)]))


class Source(Protocol):
    """A part of the data that a task reads by itself."""

    @property
    def name(self) -> str:
        """Its file."""

    def read(self) -> Logs:
        """Its transitions, of which the states are used."""


@final
@dataclass(frozen=True)
class ShardSource:
    """A shard of a dataset."""

    folder: Path
    name: str

    def read(self) -> Logs:
        """Opens the shard alone."""
        manifest = read_manifest(self.folder)
        codec, stack = read_codec(self.folder, manifest), manifest["observation"]["stack"]
        paths = [self.folder / self.name]
        return from_store(Store.of_shards(paths, codec, stack, manifest["num_actions"]))


@final
@dataclass(frozen=True, eq=False)
class ParquetSource:
    """A Parquet file.

    Args:
        name: the file.
        names: names of columns and of actions.
        labels: the labels of the states in all files, if they have any.
        num_axes: number of axes of a batch of states.
    """

    name: str
    names: dict[str, Any]
    labels: Labels | None
    num_axes: int

    def read(self) -> Logs:
        """Reads the file; its states are numbered as in all files together."""
        logs = from_frame(self.name, **self.names)
        states, next_states = logs.labelled(logs.states()), logs.labelled(logs.next_states())
        if self.labels is not None:
            # After an end there is no state, and its label may be unknown.
            next_states = np.where(logs.terminated, states, next_states)
            states, next_states = self.labels.encode(states), self.labels.encode(next_states)
        elif states.ndim < self.num_axes:
            states, next_states = (s.astype(np.float64)[:, None] for s in (states, next_states))
        return replace(
            logs, read_states=states.__getitem__, read_next_states=next_states.__getitem__
        )


@final
class RayMapper:
    """Applies functions to the parts of logs in Ray tasks; see `covshift.estimation.logs.Mapper`."""

    def __init__(self, ray: Any, sources: Sequence[Source], bounds: list[tuple[int, int]]) -> None:
        self._ray, self._sources, self.bounds = ray, sources, bounds

    def map(
        self,
        experience: Experience,
        function: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """One task per part."""
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=_RETRIES)(_run_part)
        shared = ray.put((experience.policy, experience.features))
        waiting = []
        for source, (low, high), given in zip(self._sources, self.bounds, arguments, strict=True):
            # Everything but the states, which the task reads.
            part = replace(
                experience.logs[low:high], read_states=_unread, read_next_states=_unread, rows=None
            )
            waiting.append(task.remote(source, part, shared, function, given))
        try:
            return list(ray.get(waiting))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, InputError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            raise InputError(f"Ray lost a part of the work: {error}") from error


def _run_part(
    source: Source, part: Logs, shared: Any, function: Callable[..., Any], given: tuple[Any, ...]
) -> Any:
    policy, features = shared
    read = source.read()
    if read.num_transitions != part.num_transitions:
        raise InputError(f"{source.name} has changed while it was read")
    logs = replace(part, read_states=read.read_states, read_next_states=read.read_next_states)
    return function(Experience(logs, policy, features), *given)


def _unread(rows: NDArray[np.int64]) -> NDArray[Any]:
    raise AssertionError("the states of a part are read by its task")


def _shards(folder: Path) -> tuple[list[Source], list[int]]:
    shards = read_manifest(folder)["shards"]
    return [ShardSource(folder, shard["file"]) for shard in shards], [
        s["transitions"] for s in shards
    ]


def _parquet_parts(
    folder: Path, logs: Logs, names: dict[str, Any]
) -> tuple[list[Source], list[int]]:
    from pyarrow import dataset

    files = list(dataset.dataset(folder, format="parquet", partitioning="hive").get_fragments())
    axes = logs.states(np.zeros(1, dtype=np.int64)).ndim
    sources: list[Source] = [
        ParquetSource(file.path, names, logs.state_labels, axes) for file in files
    ]
    return sources, [file.count_rows() for file in files]
