"""A dataset as a sequence of episodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final, overload

import numpy as np
from numpy.typing import NDArray

from covshift.data.manifest import read_manifest
from covshift.data.store import Store

OTHER_COLUMNS = ("policy", "life_lost", "stream", "episode")
"""Columns of an episode's rows that say more than its fields do."""


@final
@dataclass(frozen=True, eq=False)
class Episode:
    """One episode of T steps.

    Attributes:
        observations: T + 1 of them; for Atari games single frames, not stacks.
        actions: the T actions taken.
        rewards: the T rewards, as the environment gave them.
        mu: μ(a|s) of each action; None if it is not known, which never happens in a dataset.
        terminated: whether the episode ended by itself; otherwise it was cut off.
        other: further columns by name, with T + 1 entries each: `policy`, `life_lost`, `stream`, `episode`.
    """

    observations: NDArray[Any]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]
    mu: NDArray[Any] | None
    terminated: bool
    other: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        """Whether the episode was cut off, so that its last observation is a state like any other."""
        return not self.terminated

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        end = "terminated" if self.terminated else "truncated"
        return f"Episode({len(self)} steps, return {self.rewards.sum():g}, {end})"


@final
class Dataset:
    """The episodes of a dataset, read from disk when they are asked for.

    `len` counts episodes, an index gives one, and a slice gives a dataset of some of them.

    Args:
        folder: folder of the dataset.
        store: its rows.
        manifest: its manifest.
        chosen: the numbers of the episodes that this dataset shows; all by default.
    """

    def __init__(
        self, folder: Path, store: Store, manifest: dict[str, Any], chosen: range | None = None
    ) -> None:
        self.folder, self.store, self.manifest = folder, store, manifest
        self._starts = np.flatnonzero(store.columns["is_initial"])
        self._stops = np.append(self._starts[1:], len(store))
        self.chosen = range(len(self._starts)) if chosen is None else chosen

    @property
    def is_chosen(self) -> NDArray[np.bool_]:
        """Which episodes of the folder this dataset shows."""
        return np.isin(np.arange(len(self._starts)), self.chosen)

    @property
    def num_transitions(self) -> int:
        """Transitions of all episodes."""
        return int((self._stops - self._starts - 1)[list(self.chosen)].sum())

    @property
    def num_bytes(self) -> int:
        """Size of the folder's files."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, index: int) -> Episode: ...

    @overload
    def __getitem__(self, index: slice) -> Dataset: ...

    def __getitem__(self, index: int | slice) -> Episode | Dataset:
        if isinstance(index, slice):
            return Dataset(self.folder, self.store, self.manifest, self.chosen[index])
        if not -len(self) <= index < len(self):
            raise IndexError(f"there is no episode {index}: the dataset has {len(self)}")
        number = self.chosen[index]
        return self._episode(int(self._starts[number]), int(self._stops[number]))

    def __iter__(self) -> Iterator[Episode]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        lines = [f"  {word:13} {text}" for word, text in self.describe().items()]
        return "\n".join([f"Dataset {self.folder}", *lines])

    def describe(self) -> dict[str, str]:
        """What the dataset holds, as pairs of a word and a text."""
        request, observation = self.manifest["request"], self.manifest["observation"]
        episodes = f"{len(self):,} episodes"
        if len(self) != len(self._starts):
            episodes += f" (of {len(self._starts):,})"
        states = f"{observation['dtype']} {tuple(observation['shape'])}, {observation['encoding']}"
        if observation["stack"] > 1:
            states += f", {observation['stack']} stacked on reading"
        return {
            "environment": str(request.get("env", request.get("source"))),
            "transitions": f"{self.num_transitions:,} in {episodes}",
            "actions": str(self.manifest["num_actions"]),
            "observation": states,
            "policies": ", ".join(policy["policy"] for policy in request["policies"]),
            "size on disk": f"{self.num_bytes / 2**20:,.2f} MiB",
        }

    def _episode(self, start: int, stop: int) -> Episode:
        rows, column = slice(start, stop), self.store.columns
        return Episode(
            self.store.observations(np.arange(start, stop)),
            column["action"][rows][:-1].astype(np.int64),
            column["reward"][rows][1:].astype(np.float64),
            column["mu"][rows][:-1].copy(),
            bool(column["terminated"][stop - 1]),
            {name: column[name][rows].copy() for name in OTHER_COLUMNS},
        )


def open_dataset(folder: Path | str) -> Dataset:
    """Opens a dataset that `covshift collect` or `covshift data import` made.

    Raises:
        InputError: there is no dataset, or it is not finished.
    """
    return Dataset(Path(folder), Store.open(folder), read_manifest(Path(folder)))
