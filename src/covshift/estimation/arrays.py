"""Logs from NumPy arrays and from trajectories.

Nothing is dropped silently: what cannot be used is an `InputError` with the count of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError
from covshift.estimation.logs import ArrayStates, Logs


class Trajectory(NamedTuple):
    """One trajectory of T steps.

    Attributes:
        states: T + 1 of them, or T if the episode terminated.
        actions: T.
        rewards: T, each received after the action.
        terminated: whether the episode ended; else the record was cut off.
        mu: T probabilities of the actions taken, where they are known.
        is_initial: whether the first state is a draw of d₀.
    """

    states: ArrayLike
    actions: ArrayLike
    rewards: ArrayLike
    terminated: bool
    mu: ArrayLike | None = None
    is_initial: bool = True


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
    """Transitions from arrays with an entry each, trajectory after trajectory, in the order of time.

    Args:
        states: s, numbers or arrays.
        actions: whole numbers.
        rewards: received after the action.
        next_states: s'; anything where the episode terminated.
        terminated: whether it did.
        trajectory: any label that is the same for the transitions of one trajectory; by default a
            trajectory ends where one terminated or was truncated.
        mu: μ(a|s) of the action.
        truncated: whether the record was cut off there.
        is_initial: whether s is a draw of d₀; by default the first state of each trajectory.
        num_actions: by default one more than the largest.
    """
    s_tm1, s_t = np.asarray(states), np.asarray(next_states)
    size = len(s_tm1) if s_tm1.ndim else 0
    if s_t.shape != s_tm1.shape:
        raise InputError(f"next_states has shape {s_t.shape}, but states has {s_tm1.shape}")
    action = _whole_numbers("actions", actions)
    ended = as_flags("terminated", terminated, size)
    cut = (
        np.zeros(size, dtype=bool) if truncated is None else as_flags("truncated", truncated, size)
    )
    if len(action) != size:
        raise InputError(f"actions has {len(action)} entries, but states has {size}")
    if size == 0:
        raise InputError("the data hold no transition")
    labels = None if trajectory is None else np.asarray(trajectory)
    number = number_trajectories(labels, ended | cut)
    last = np.append(np.diff(number) > 0, True)
    first = np.append(True, last[:-1])
    return Logs(
        ArrayStates(s_tm1, s_t),
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
    """Transitions from trajectories, one after the other."""
    parts: list[dict[str, NDArray[Any]]] = []
    with_mu = 0
    for number, given in enumerate(trajectories):
        trajectory = Trajectory(*given)
        states, actions = np.asarray(trajectory.states), np.asarray(trajectory.actions)
        steps = len(actions)
        if trajectory.terminated and len(states) == steps:
            states = np.concatenate([states, states[-1:]])
        if steps == 0 or len(states) != steps + 1:
            raise InputError(
                f"trajectory {number} has {len(states)} states for {steps} actions, but {steps + 1} are "
                "needed"
            )
        with_mu += trajectory.mu is not None
        last = np.arange(steps) == steps - 1
        parts.append(
            {
                "states": states[:-1],
                "actions": actions,
                "rewards": np.asarray(trajectory.rewards, dtype=np.float64),
                "next_states": states[1:],
                "terminated": last & bool(trajectory.terminated),
                "trajectory": np.full(steps, number),
                "is_initial": (np.arange(steps) == 0) & bool(trajectory.is_initial),
            }
            | ({} if trajectory.mu is None else {"mu": np.asarray(trajectory.mu, dtype=float)})
        )
    if not parts:
        raise InputError("the data hold no transition")
    if 0 < with_mu < len(parts):
        raise InputError(f"{len(parts) - with_mu} of {len(parts)} trajectories have no mu")
    return from_arrays(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        num_actions=num_actions,
    )


def number_trajectories(labels: NDArray[Any] | None, ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """0, 1, … in the order of the data; without labels a trajectory ends where `ends` says."""
    if labels is None:
        return np.concatenate([[0], np.cumsum(ends[:-1])]).astype(np.int64)
    if labels.shape != ends.shape:
        raise InputError(f"trajectory has shape {labels.shape}, but {ends.shape} is needed")
    changes = np.append(True, labels[1:] != labels[:-1])
    again = int(changes.sum()) - len(np.unique(labels[changes]))
    if again:
        raise InputError(
            f"the rows of {again} trajectories are not together; sort by trajectory and time"
        )
    return np.asarray(np.cumsum(changes) - 1, dtype=np.int64)


def as_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Floats, finite but for rewards, which `Logs` checks itself."""
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
    if name != "rewards" and not np.isfinite(numbers).all():
        bad = int((~np.isfinite(numbers)).sum())
        raise InputError(f"{bad} of {numbers.size} entries of {name} are not finite numbers")
    return numbers


def as_flags(name: str, values: ArrayLike, size: int) -> NDArray[np.bool_]:
    """Booleans, of which each must be one."""
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
        as_float = as_numbers(name, numbers)
        bad = as_float != np.round(as_float)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(bad)} entries of {name} are no whole numbers, the first is "
                f"{as_float[bad][0]}"
            )
        numbers = as_float.astype(np.int64)
    if numbers.ndim != 1:
        raise InputError(f"{name} has shape {numbers.shape}, but one axis is needed")
    return numbers.astype(np.int64)
