"""Logged transitions in one columnar form, whatever they came from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.store import Store
from covshift.errors import InputError

BLOCK = 1 << 18
"""Transitions that are in memory at once where states are streamed from a dataset."""

BLOCK_BYTES = 1 << 30
"""What the states of such a block may take."""


class Block(NamedTuple):
    """Consecutive transitions; each field has an entry a transition.

    Attributes:
        s_tm1: the state before.
        a_tm1: the action taken there.
        mu_tm1: μ(a|s) of that action; NaN where it was not logged.
        r_t: the reward.
        terminated_t: whether the episode ended with it; s_t is no state then.
        truncated_t: whether the record was cut off there; s_t is a state like any other.
        s_t: the state after.
        is_initial_tm1: whether s_tm1 is a draw of the start distribution d₀.
        trajectory: which trajectory it belongs to, counted from 0.
    """

    s_tm1: NDArray[Any]
    a_tm1: NDArray[np.int64]
    mu_tm1: NDArray[np.float64]
    r_t: NDArray[np.float64]
    terminated_t: NDArray[np.bool_]
    truncated_t: NDArray[np.bool_]
    s_t: NDArray[Any]
    is_initial_tm1: NDArray[np.bool_]
    trajectory: NDArray[np.int64]


class States(Protocol):
    """Where the states of transitions come from."""

    def pairs(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The states before and after these transitions."""


@final
@dataclass(frozen=True, eq=False)
class ArrayStates:
    """States in memory."""

    s_tm1: NDArray[Any]
    s_t: NDArray[Any]

    def pairs(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Entries of both arrays."""
        return self.s_tm1[rows], self.s_t[rows]


@final
@dataclass(frozen=True, eq=False)
class StoreStates:
    """States of a dataset on disk, decoded when they are asked for."""

    store: Store
    ids: NDArray[np.int64]

    def pairs(self, rows: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Decodes both ends of each transition."""
        ids = self.ids[rows]
        return self.store.states(ids), self.store.states(ids + 1)


@final
@dataclass(frozen=True, eq=False)
class Logs:
    """Transitions of one or many trajectories, each trajectory in the order of time.

    The small columns are in memory, the states wherever `states` keeps them. Make it with `as_logs` or one
    of the functions of `covshift.estimation.inputs`, which check what they are given.

    Args:
        states: the states.
        action: whole numbers from 0.
        mu: μ(a|s) of each action; None where it is not known.
        reward: finite numbers.
        terminated: whether the episode ended.
        truncated: whether the record was cut off.
        is_initial: whether the state before is a draw of d₀.
        trajectory: numbers 0, 1, … that never fall.
        num_actions: of the environment.
        rows: which transitions of `states` these are; all by default.
    """

    states: States
    action: NDArray[Any]
    mu: NDArray[Any] | None
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_initial: NDArray[np.bool_]
    trajectory: NDArray[Any]
    num_actions: int
    rows: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        _check_columns(self)

    def __len__(self) -> int:
        return len(self.action)

    @property
    def num_trajectories(self) -> int:
        """How many trajectories there are."""
        return int(self.trajectory[-1]) + 1

    @property
    def has_episodes(self) -> bool:
        """Whether any episode terminated."""
        return bool(self.terminated.any())

    def blocks(self, size: int = BLOCK) -> Iterator[Block]:
        """All transitions in order, at most `size` at a time, and of large states fewer."""
        one = self.block(np.zeros(1, dtype=np.int64))
        size = min(size, max(1, BLOCK_BYTES // (one.s_tm1.nbytes + one.s_t.nbytes)))
        for low in range(0, len(self), size):
            yield self.block(np.arange(low, min(low + size, len(self))))

    def block(self, rows: NDArray[np.int64]) -> Block:
        """The transitions at these rows."""
        s_tm1, s_t = self.states.pairs(rows if self.rows is None else self.rows[rows])
        mu = np.full(len(rows), np.nan) if self.mu is None else self.mu[rows].astype(np.float64)
        return Block(
            s_tm1,
            self.action[rows].astype(np.int64),
            mu,
            self.reward[rows].astype(np.float64),
            self.terminated[rows],
            self.truncated[rows],
            s_t,
            self.is_initial[rows],
            self.trajectory[rows].astype(np.int64),
        )

    def with_mu(self, mu: NDArray[np.float64]) -> Logs:
        """The same transitions with these probabilities of the actions taken."""
        return replace(self, mu=mu)

    def select(self, trajectories: NDArray[np.bool_]) -> Logs:
        """The trajectories that a mask over all of them marks, numbered anew."""
        kept = np.flatnonzero(trajectories[self.trajectory])
        if not len(kept):
            raise InputError("no trajectory is left")
        number = np.cumsum(trajectories) - 1
        return self._at(kept, trajectory=number[self.trajectory[kept]])

    def split(self, length: int) -> Logs:
        """Cuts each trajectory into segments of at most `length` transitions.

        For intervals from few long trajectories of a continuing problem. A cut is a truncation, and the
        segment after it does not start from d₀. The segments must be long against the time in which the
        process forgets its state.
        """
        if length < 1:
            raise InputError(f"length must be at least 1, but it is {length}")
        starts = np.flatnonzero(np.diff(self.trajectory, prepend=-1) > 0)
        age = np.arange(len(self)) - starts[self.trajectory]
        first = (age % length) == 0
        last = np.append(first[1:], True)
        return self._at(
            np.arange(len(self)),
            trajectory=np.cumsum(first) - 1,
            truncated=(last & ~self.terminated) | self.truncated,
        )

    def _at(self, kept: NDArray[np.int64], **columns: NDArray[Any]) -> Logs:
        names = ("action", "reward", "terminated", "truncated", "is_initial", "trajectory")
        rows = kept if self.rows is None else self.rows[kept]
        chosen = {name: columns.get(name, getattr(self, name)[kept]) for name in names}
        mu = None if self.mu is None else self.mu[kept]
        return replace(self, rows=rows, mu=mu, **chosen)


def _check_columns(logs: Logs) -> None:
    size = len(logs.action)
    if size == 0:
        raise InputError("the data hold no transition")
    columns = {
        "mu": logs.mu,
        "reward": logs.reward,
        "terminated": logs.terminated,
        "truncated": logs.truncated,
        "is_initial": logs.is_initial,
        "trajectory": logs.trajectory,
    }
    for name, column in columns.items():
        if column is not None and column.shape != (size,):
            raise InputError(f"{name} has shape {column.shape}, but ({size},) is needed")
    bad = ~np.isfinite(logs.reward)
    if bad.any():
        raise InputError(
            f"{_count(bad)} rewards are not finite numbers, the first is {logs.reward[bad][0]}"
        )
    bad = (logs.action < 0) | (logs.action >= logs.num_actions)
    if bad.any():
        raise InputError(
            f"{_count(bad)} actions lie outside 0 … {logs.num_actions - 1}, the first is "
            f"{logs.action[bad][0]}"
        )
    if logs.mu is not None:
        check_mu(logs.mu)
    last = np.diff(logs.trajectory, append=logs.trajectory[-1] + 1) > 0
    bad = ~last & (logs.terminated | logs.truncated)
    if bad.any():
        raise InputError(
            f"{_count(bad)} transitions end an episode, but their trajectory goes on after them; "
            "give each episode a trajectory of its own"
        )
    bad = logs.terminated & logs.truncated
    if bad.any():
        raise InputError(f"{_count(bad)} transitions are both terminated and truncated")


def check_mu(mu: NDArray[Any]) -> None:
    """Each action taken has a probability in (0, 1]."""
    bad = ~((mu > 0) & (mu <= 1 + 1e-6))
    if bad.any():
        raise InputError(
            f"{_count(bad)} actions were taken with a probability μ(a|s) outside (0, 1], the first is "
            f"{mu[bad][0]:.6g}; correct them, or estimate μ with behavior='estimate'"
        )


def _count(bad: NDArray[np.bool_]) -> str:
    return f"{int(bad.sum()):,} of {len(bad):,}"
