"""Datasets of d3rlpy, in and out, with μ(a|s) of every action in a column of their own.

    from covshift.integrations.d3rlpy import export_d3rlpy, import_d3rlpy
    d3rlpy.algos.DiscreteCQLConfig().create().fit(export_d3rlpy("out/walk"), n_steps=1000)

An episode of d3rlpy has a row for each action. One that terminated has no last state. One that was cut off has it as one more row,
whose action and reward no transition uses.
"""

from __future__ import annotations

from importlib.util import find_spec

from covshift.extras import MissingExtraError

if find_spec("d3rlpy") is None:
    raise MissingExtraError(
        "datasets of d3rlpy need d3rlpy, whose pins exclude the Gymnasium that covshift needs: in an environment of its "
        "own, pip install d3rlpy==2.8.1, and then covshift"
    )

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import d3rlpy
import numpy as np
from d3rlpy.dataset import Episode as D3Episode
from numpy.typing import ArrayLike, NDArray

from covshift.data.dataset import Dataset, Episode, open_dataset
from covshift.data.dataset_writer import write_dataset
from covshift.data.format import SHARD_TRANSITIONS
from covshift.errors import InputError


@dataclass(frozen=True)
class LoggedEpisode(D3Episode):  # type: ignore[misc]  # d3rlpy is seldom where types are checked.
    """An episode of d3rlpy with one more column, which d3rlpy writes and reads and otherwise leaves alone.

    Attributes:
        mu: probability with which each action was taken; in the last row of an episode that was cut off it is not used.
    """

    mu: NDArray[np.float32]

    def serialize(self) -> dict[str, Any]:
        """All columns by name."""
        return {**super().serialize(), "mu": self.mu}

    @classmethod
    def deserialize(cls, serializedData: dict[str, Any]) -> LoggedEpisode:  # noqa: N803
        """An episode from its columns."""
        return cls(**serializedData)


def export_d3rlpy(folder: Path | str, transition_picker: Any = None) -> d3rlpy.dataset.ReplayBuffer:
    """The episodes of a dataset as what d3rlpy's algorithms learn from, `LoggedEpisode`s in memory.

    Booleans become 0 and 1. Single frames get an axis for their channel, as d3rlpy's `FrameStackTransitionPicker` needs it.

    Args:
        folder: the dataset's folder.
        transition_picker: how d3rlpy makes transitions; for Atari games `FrameStackTransitionPicker(4)`.
    """
    dataset = open_dataset(Path(folder))
    return d3rlpy.dataset.ReplayBuffer(
        d3rlpy.dataset.InfiniteBuffer(),
        transition_picker=transition_picker,
        episodes=[_exported(episode, dataset) for episode in dataset],
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=dataset.store.num_actions,
    )


def load_d3rlpy(file: BinaryIO) -> d3rlpy.dataset.ReplayBuffer:
    """What `dump` of an exported dataset wrote, with μ; `ReplayBuffer.load` of d3rlpy reads the same file without it."""
    buffer = d3rlpy.dataset.InfiniteBuffer()
    return d3rlpy.dataset.ReplayBuffer.load(file, buffer, episode_cls=LoggedEpisode)


def import_d3rlpy(
    dataset: d3rlpy.dataset.ReplayBufferBase,
    out: Path | str,
    *,
    mu: ArrayLike | None = None,
    policy: str | None = None,
    num_actions: int | None = None,
    stack: int = 1,
    shard_transitions: int = SHARD_TRANSITIONS,
) -> Path:
    """Makes a dataset of covshift from one of d3rlpy, such as an `MDPDataset`.

    Args:
        dataset: its actions are discrete.
        out: folder of the new dataset.
        mu: the column μ(a|s), with an entry for each row that the dataset was made of; not needed if its episodes are
            `LoggedEpisode`s.
        policy: name of the behavior policy, which gives μ if nothing else does.
        num_actions: number of actions; by default as d3rlpy knows it.
        stack: how many of the newest observations make a state.
        shard_transitions: a shard ends with the first episode after this many transitions.

    Raises:
        InputError: something cannot be used.
    """
    if dataset.dataset_info.action_space != d3rlpy.constants.ActionSpace.DISCRETE:
        raise InputError("actions must be discrete, but those of the dataset are continuous")
    column = None if mu is None else np.asarray(mu).reshape(-1)
    rows = sum(episode.size() for episode in dataset.episodes)
    if column is not None and len(column) != rows:
        raise InputError(
            f"mu has {len(column)} entries, but the dataset has {rows} rows; d3rlpy leaves out episodes that were cut off "
            "after a single row"
        )
    return write_dataset(
        Path(out),
        _imported(dataset.episodes, column, stack),
        request={"source": "d3rlpy"},
        num_actions=num_actions or dataset.dataset_info.action_size,
        stack=stack,
        policy=policy,
        shard_transitions=shard_transitions,
    )


def _exported(episode: Episode, dataset: Dataset) -> LoggedEpisode:
    extra = int(episode.truncated)  # The row of the last state.
    rows = len(episode) + extra
    observations = episode.observations[:rows]
    if dataset.store.stack > 1:
        observations = observations[:, None]
    if observations.dtype == np.bool_:
        observations = observations.astype(np.uint8)
    assert episode.mu is not None
    return LoggedEpisode(
        observations,
        np.append(episode.actions, [0] * extra).astype(np.int64).reshape(rows, 1),
        np.append(episode.rewards, [0] * extra).astype(np.float32).reshape(rows, 1),
        episode.terminated,
        np.append(episode.mu, [1] * extra).astype(np.float32),
    )


def _imported(episodes: Any, mu: NDArray[Any] | None, stack: int) -> Iterator[Episode]:
    first = 0
    for number, episode in enumerate(episodes):
        size, terminated = episode.size(), bool(episode.terminated)
        steps = size if terminated else size - 1
        if not isinstance(episode.observations, np.ndarray):
            raise InputError(f"episode {number} has several observations, but one array is needed")
        observations = episode.observations
        if stack > 1 and observations.ndim == 4 and observations.shape[1] == 1:
            observations = observations[:, 0]
        if (
            terminated
        ):  # d3rlpy keeps no state where an episode ended, and nothing is learned from it.
            observations = np.concatenate([observations, np.zeros_like(observations[:1])])
        column = getattr(episode, "mu", None) if mu is None else mu[first : first + size]
        yield Episode(
            observations,
            np.asarray(episode.actions).reshape(size)[:steps].astype(np.int64),
            np.asarray(episode.rewards, dtype=np.float64).reshape(size)[:steps],
            None if column is None else np.asarray(column).reshape(size)[:steps],
            terminated,
        )
        first += size
