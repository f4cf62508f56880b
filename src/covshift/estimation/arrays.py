"""Logs from NumPy arrays and from trajectories.

Unusable rows are reported in one `InputError` with their number; none is dropped silently.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError
from covshift.estimation.logs import Logs, Trajectory, check_finite


def from_arrays(
    states: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    next_states: ArrayLike,
    terminated: ArrayLike,
    *,
    trajectory: ArrayLike | None = None,
    mu: ArrayLike | None = None,
    truncated: ArrayLike | None = None,
    is_initial: ArrayLike | None = None,
    num_actions: int | None = None,
) -> Logs:
    """Logs from arrays with one entry per transition, trajectory after trajectory, in the order of time.

    Args:
        states: the states before, as numbers or arrays.
        actions: whole numbers from 0.
        rewards: rewards received after the actions.
        next_states: the states after; any value where the episode terminated.
        terminated: whether the episode ended with the transition.
        trajectory: any label that the transitions of one trajectory share; by default a trajectory ends where
            `terminated` or `truncated` says so.
        mu: the probability μ(a|s) of each action taken.
        truncated: whether the record was cut off after the transition.
        is_initial: whether the state before is a draw from the start distribution d₀; by default the first
            state of each trajectory is.
        num_actions: number of actions; by default one more than the largest in the data.
    """
    s_tm1, s_t = np.asarray(states), np.asarray(next_states)
    size = len(s_tm1) if s_tm1.ndim else 0
    if s_t.shape != s_tm1.shape:
        raise InputError(f"next_states has shape {s_t.shape}, but states has {s_tm1.shape}")
    action = _whole_numbers("actions", actions)
    ended = as_flags("terminated", terminated, size)
    cut = as_flags(
        "truncated", np.zeros(size, dtype=bool) if truncated is None else truncated, size
    )
    if len(action) != size:
        raise InputError(f"actions has {len(action)} entries, but states has {size}")
    if size == 0:
        raise InputError("the data hold no transition")
    number = number_trajectories(
        None if trajectory is None else np.asarray(trajectory), ended | cut
    )
    last = np.append(np.diff(number) > 0, True)
    first = np.append(True, last[:-1])
    return Logs(
        s_tm1.__getitem__,
        s_t.__getitem__,
        action,
        None if mu is None else np.asarray(mu, dtype=np.float64),
        as_numbers("rewards", rewards),
        ended,
        cut | (last & ~ended),
        first if is_initial is None else as_flags("is_initial", is_initial, size),
        number,
        int(action.max()) + 1 if num_actions is None else num_actions,
    )


def from_trajectories(
    trajectories: Iterable[Trajectory], *, num_actions: int | None = None
) -> Logs:
    """Logs from trajectories, in the order given."""
    parts: list[dict[str, NDArray[Any]]] = []
    for number, given in enumerate(trajectories):
        trajectory = Trajectory(*given)
        states, actions = np.asarray(trajectory.states), np.asarray(trajectory.actions)
        steps = np.arange(len(actions))
        if trajectory.terminated and len(states) == len(actions):
            states = np.concatenate([states, states[-1:]])
        if len(steps) == 0 or len(states) != len(steps) + 1:
            raise InputError(
                f"trajectory {number} has {len(states)} states for {len(steps)} actions, but "
                f"{len(steps) + 1} are needed"
            )
        part = {
            "states": states[:-1],
            "actions": actions,
            "rewards": np.asarray(trajectory.rewards, dtype=np.float64),
            "next_states": states[1:],
            "terminated": (steps == steps[-1]) & bool(trajectory.terminated),
            "trajectory": np.full(len(steps), number),
            "is_initial": (steps == 0) & bool(trajectory.is_initial),
        }
        if trajectory.mu is not None:
            part["mu"] = np.asarray(trajectory.mu, dtype=np.float64)
        parts.append(part)
    if not parts:
        raise InputError("the data hold no transition")
    without_mu = sum("mu" not in part for part in parts)
    if 0 < without_mu < len(parts):
        raise InputError(f"{without_mu} of {len(parts)} trajectories have no mu")
    return from_arrays(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        num_actions=num_actions,
    )


def number_trajectories(labels: NDArray[Any] | None, ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Each row's trajectory as 0, 1, …, by its label; without labels a trajectory stops at each of `ends`."""
    if labels is None:
        return np.concatenate([[0], np.cumsum(ends[:-1])]).astype(np.int64)
    if labels.shape != ends.shape:
        raise InputError(f"trajectory has shape {labels.shape}, but {ends.shape} is needed")
    changes = np.append(True, labels[1:] != labels[:-1])
    scattered = int(changes.sum()) - len(np.unique(labels[changes]))
    if scattered:
        raise InputError(
            f"the rows of {scattered} trajectories are not together; sort by trajectory and time"
        )
    return np.asarray(np.cumsum(changes) - 1, dtype=np.int64)


def as_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Finite floats."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
    check_finite(name, numbers)
    return numbers


def as_flags(name: str, values: ArrayLike, size: int) -> NDArray[np.bool_]:
    """`size` booleans, given as such or as 0 and 1; a missing value is refused."""
    flags = np.asarray(values)
    if flags.shape != (size,):
        raise InputError(f"{name} has shape {flags.shape}, but ({size},) is needed")
    if flags.dtype.kind in "biuf":
        bad = (flags != 0) & (flags != 1)
    else:
        known = (bool, int, float, np.bool_, np.number)
        bad = np.array([not isinstance(value, known) or value not in (0, 1) for value in flags])
    if bad.any():
        raise InputError(f"{int(bad.sum())} of {size} entries of {name} are neither true nor false")
    return flags.astype(bool)


def _whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        numbers = as_numbers(name, numbers)
        bad = numbers != np.round(numbers)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(bad)} entries of {name} are not whole numbers, the first is "
                f"{numbers[bad][0]}"
            )
    if numbers.ndim != 1:
        raise InputError(f"{name} has shape {numbers.shape}, but one axis is needed")
    return numbers.astype(np.int64)
