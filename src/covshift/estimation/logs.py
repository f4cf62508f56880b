"""Logged transitions in one columnar form, whatever they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeAlias, final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError
from covshift.estimation.display import as_html, make_frame, state_columns
from covshift.estimation.labels import Labels

BLOCK = 1 << 18
"""Transitions that are in memory at once where states are streamed from a dataset."""

BLOCK_BYTES = 1 << 30
"""Memory that the states of such a block may take."""

ReadStates: TypeAlias = Callable[[NDArray[np.int64]], NDArray[Any]]
"""Looks up states by row number, in an array or in a dataset on disk."""

_COLUMNS = ("action", "mu", "reward", "terminated", "truncated", "is_initial", "trajectory")


class Trajectory(NamedTuple):
    """One trajectory of T steps, an element of `Logs` and an input of `from_trajectories`.

    Attributes:
        states: T + 1 states; T are enough if the episode terminated.
        actions: T whole numbers.
        rewards: T numbers, each received after the action.
        terminated: whether the episode ended; if not, the record was cut off.
        mu: the probability μ(a|s) of each action taken, if it is known.
        is_initial: whether the first state is a draw from the start distribution d₀.
    """

    states: ArrayLike
    actions: ArrayLike
    rewards: ArrayLike
    terminated: bool
    mu: ArrayLike | None = None
    is_initial: bool = True

    def __repr__(self) -> str:
        rewards = np.asarray(self.rewards, dtype=np.float64)
        end = "terminated" if self.terminated else "cut off"
        return f"Trajectory({len(rewards):,} transitions, {end}, sum of rewards {rewards.sum():g})"


class Mapper(Protocol):
    """Applies a function to parts of the data, each of which holds whole trajectories, and returns the results in order."""

    @property
    def bounds(self) -> list[tuple[int, int]]:
        """The number of each part's first trajectory and of the one after its last."""

    def map(
        self, experience: Any, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """`function(part, *arguments)` for each part of an `Experience`, itself an `Experience`."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class Logs:
    """Transitions of one or many trajectories, each trajectory in the order of time.

    As a sequence it holds trajectories: `len(logs)` is their number, `logs[3]` and `for trajectory in logs`
    give a `Trajectory`, and `logs[10:20]`, `logs[[3, 5]]` or `logs[mask]` give `Logs` of some of them.
    `num_transitions` and the columns below count transitions. The columns are in memory; states are looked up
    when `states` or `next_states` asks for them. The states of a trajectory are taken to follow one another.

    Make it with `as_logs` or one of the functions it names, which check their inputs.

    Args:
        read_states: looks up the states before transitions.
        read_next_states: looks up the states after transitions; meaningless where an episode terminated.
        action: whole numbers from 0.
        mu: the probability μ(a|s) of each action taken; None if it was not logged.
        reward: finite numbers.
        terminated: whether the episode ended with the transition.
        truncated: whether the record was cut off after it.
        is_initial: whether the state before is a draw from the start distribution d₀.
        trajectory: the trajectory's number 0, 1, …, in this order.
        num_actions: number of actions of the environment.
        rows: the row numbers to look states up by; by default 0, 1, …
        state_labels: the labels that the states stand for, if they are numbers of labels.
        action_labels: the labels that the actions stand for, if they are numbers of labels.
        mapper: computes sums over parts of the data elsewhere; None for this process. A selection of trajectories has none.
    """

    read_states: ReadStates
    read_next_states: ReadStates
    action: NDArray[Any]
    mu: NDArray[Any] | None
    reward: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    is_initial: NDArray[np.bool_]
    trajectory: NDArray[Any]
    num_actions: int
    rows: NDArray[np.int64] | None = None
    state_labels: Labels | None = None
    action_labels: Labels | None = None
    mapper: Mapper | None = None

    def __post_init__(self) -> None:
        _check_columns(self)

    def __len__(self) -> int:
        return int(self.trajectory[-1]) + 1

    def __iter__(self) -> Iterator[Trajectory]:
        return map(self._trajectory, range(len(self)))

    @overload
    def __getitem__(self, which: int) -> Trajectory: ...
    @overload
    def __getitem__(self, which: slice | ArrayLike) -> Logs: ...
    def __getitem__(self, which: int | slice | ArrayLike) -> Trajectory | Logs:
        if isinstance(which, int | np.integer):
            return self._trajectory(range(len(self))[which])
        numbers = np.arange(len(self))[which if isinstance(which, slice) else np.asarray(which)]
        if not len(numbers):
            raise InputError("no trajectory is left")
        lengths = self.lengths[numbers]
        shift = self.starts[numbers] - (np.cumsum(lengths) - lengths)
        rows = np.arange(lengths.sum()) + np.repeat(shift, lengths)
        return self._take(rows, trajectory=np.repeat(np.arange(len(numbers)), lengths))

    def __repr__(self) -> str:
        first = self.states(np.zeros(1, dtype=np.int64))
        whole = first.ndim == 1 and first.dtype.kind in "iu"
        kind = "whole numbers" if whole else f"{first.dtype} arrays of shape {first.shape[1:]}"
        if self.state_labels is not None:
            kind = f"{len(self.state_labels)} labels"
        return (
            f"Logs({self.num_transitions:,} transitions in {len(self):,} trajectories, of which "
            f"{int(self.terminated.sum()):,} terminated; {self.num_actions} actions, μ "
            f"{'unknown' if self.mu is None else 'logged'}; states are {kind})"
        )

    @property
    def num_transitions(self) -> int:
        """The number of transitions in all trajectories."""
        return len(self.action)

    @property
    def num_trajectories(self) -> int:
        """The number of trajectories, which is also `len(logs)`."""
        return len(self)

    @property
    def has_episodes(self) -> bool:
        """Whether any episode terminated."""
        return bool(self.terminated.any())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The row of each trajectory's first transition."""
        return np.flatnonzero(np.diff(self.trajectory, prepend=-1) > 0)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """The number of transitions of each trajectory."""
        return np.diff(self.starts, append=self.num_transitions)

    def states(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The states before the transitions at these rows, by default before all of them."""
        return self.read_states(self._sources(rows))

    def next_states(self, rows: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The states after the transitions at these rows; meaningless where an episode terminated."""
        return self.read_next_states(self._sources(rows))

    def labelled(self, states: NDArray[Any]) -> NDArray[Any]:
        """States as users call them: by their labels, if the numbers stand for labels."""
        return _decode(self.state_labels, states)

    def blocks(self, size: int = BLOCK) -> Iterator[NDArray[np.int64]]:
        """Row numbers of all transitions in order, at most `size` at a time, fewer if states are large."""
        one = np.zeros(1, dtype=np.int64)
        state_bytes = self.states(one).nbytes + self.next_states(one).nbytes
        size = min(size, max(1, BLOCK_BYTES // state_bytes))
        for low in range(0, self.num_transitions, size):
            yield np.arange(low, min(low + size, self.num_transitions))

    def split(self, length: int) -> Logs:
        """Cuts each trajectory into segments of at most `length` transitions.

        This gives intervals from few long trajectories of a continuing problem. A cut counts as a truncation,
        and the segment after it does not start from d₀. Choose a length well above the time in which the
        process forgets its state.
        """
        if length < 1:
            raise InputError(f"length must be at least 1, but it is {length}")
        rows = np.arange(self.num_transitions)
        first = (rows - self.starts[self.trajectory]) % length == 0
        last = np.append(first[1:], True)
        return self._take(
            rows,
            trajectory=np.cumsum(first) - 1,
            truncated=(last & ~self.terminated) | self.truncated,
        )

    def to_frame(self) -> Any:
        """A pandas frame with a row per transition, from which `from_frame` makes the same logs.

        The columns are `trajectory`, `state`, `action`, `reward`, `next_state`, `terminated`, `truncated`, `is_initial` and
        `propensity`. A vector has a column per entry, `state_0`, `state_1`, …
        """
        columns: dict[str, Any] = {"trajectory": self.trajectory}
        columns |= state_columns("state", self.labelled(self.states()))
        columns["action"] = _decode(self.action_labels, self.action)
        columns["reward"] = self.reward
        columns |= state_columns("next_state", self.labelled(self.next_states()))
        for name in ("terminated", "truncated", "is_initial"):
            columns[name] = getattr(self, name)
        return make_frame(columns if self.mu is None else columns | {"propensity": self.mu})

    def _repr_html_(self) -> str:
        kinds = {
            "transitions": f"{self.num_transitions:,}",
            "trajectories": f"{len(self):,}",
            "terminated": f"{int(self.terminated.sum()):,}",
            "actions": self.num_actions,
            "propensities": "unknown" if self.mu is None else "logged",
            "mean_reward": float(self.reward.mean()),
        }
        return as_html("Logs", [kinds])

    def _sources(self, rows: NDArray[np.int64] | None) -> NDArray[np.int64]:
        chosen = np.arange(self.num_transitions) if rows is None else rows
        return chosen if self.rows is None else self.rows[chosen]

    def _trajectory(self, number: int) -> Trajectory:
        rows = np.arange(self.lengths[number]) + self.starts[number]
        ended = bool(self.terminated[rows[-1]])
        states = self.states(rows)
        if not ended:
            states = np.concatenate([states, self.next_states(rows[-1:])])
        return Trajectory(
            self.labelled(states),
            _decode(self.action_labels, self.action[rows]),
            self.reward[rows],
            ended,
            None if self.mu is None else self.mu[rows],
            bool(self.is_initial[rows[0]]),
        )

    def _take(self, rows: NDArray[np.int64], **changed: Any) -> Logs:
        columns: dict[str, Any] = {name: getattr(self, name) for name in _COLUMNS} | changed
        for name in columns.keys() - changed.keys():
            columns[name] = None if columns[name] is None else columns[name][rows]
        return replace(self, rows=self._sources(rows), mapper=None, **columns)


def _check_columns(logs: Logs) -> None:
    size = len(logs.action)
    if size == 0:
        raise InputError("the data hold no transition")
    for name in _COLUMNS:
        column = getattr(logs, name)
        if column is not None and column.shape != (size,):
            raise InputError(f"{name} has shape {column.shape}, but ({size},) is needed")
    check_finite("rewards", logs.reward)
    bad = (logs.action < 0) | (logs.action >= logs.num_actions)
    if bad.any():
        raise InputError(
            f"{_count(bad)} actions lie outside 0 … {logs.num_actions - 1}, the first is "
            f"{logs.action[bad][0]}; give the number of actions as num_actions, or their labels as action_labels=[…]"
        )
    if logs.mu is not None:
        check_mu(logs.mu)
    last = np.diff(logs.trajectory, append=logs.trajectory[-1] + 1) > 0
    bad = ~last & (logs.terminated | logs.truncated)
    if bad.any():
        raise InputError(
            f"{_count(bad)} transitions end an episode, but their trajectory continues after them; "
            "give each episode a trajectory of its own"
        )
    bad = logs.terminated & logs.truncated
    if bad.any():
        raise InputError(f"{_count(bad)} transitions are both terminated and truncated")


def _decode(labels: Labels | None, numbers: NDArray[Any]) -> NDArray[Any]:
    return numbers if labels is None else labels.decode(numbers)


def check_finite(name: str, values: NDArray[Any]) -> None:
    """Refuses NaN and infinities."""
    bad = ~np.isfinite(values)
    if bad.any():
        raise InputError(
            f"{_count(bad)} entries of {name} are not finite numbers, the first is {values[bad][0]}"
        )


def check_mu(mu: NDArray[Any]) -> None:
    """Refuses probabilities of actions taken that do not lie in (0, 1]."""
    bad = ~((mu > 0) & (mu <= 1 + 1e-6))
    if bad.any():
        raise InputError(
            f"{_count(bad)} actions were taken with a probability μ(a|s) outside (0, 1], the first is "
            f"{mu[bad][0]:.6g}; correct them, or estimate μ with behavior='estimate'"
        )


def _count(bad: NDArray[np.bool_]) -> str:
    return f"{int(bad.sum()):,} of {bad.size:,}"
