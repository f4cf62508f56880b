"""Logged data as users have them, checked and brought into one form.

Nothing is dropped silently: what cannot be used is an `InputError` with the count of rows.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.data.exchange import import_minari
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.estimation.logs import ArrayStates, Logs, StoreStates
from covshift.theory.mdp import FiniteMDP
from covshift.theory.simulation import simulate
from covshift.theory.validation import as_policy as as_policy_table


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


Data: TypeAlias = Any
"""`Logs`, a folder, a `Store`, `minari:NAME`, a frame, a mapping of arrays, or trajectories."""


def as_logs(data: Data, *, num_actions: int | None = None) -> Logs:
    """The transitions of anything that `estimate_ratio` and `evaluate_policy` take.

    Args:
        data: `Logs`; a covshift dataset (its folder or a `Store`); `minari:NAME` for a local Minari dataset;
            a mapping of NumPy arrays (`from_arrays`); a pandas or Polars frame (`from_frame`); or an iterable
            of `Trajectory` (`from_trajectories`).
        num_actions: of the environment; by default the dataset's, or one more than the largest in the data.
    """
    if isinstance(data, Logs):
        return data
    if isinstance(data, Store):
        return from_store(data)
    if isinstance(data, str) and data.startswith("minari:"):
        return from_minari(data.removeprefix("minari:"))
    if isinstance(data, str | Path):
        return from_store(Store.open(data))
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):
        return from_frame(data, num_actions=num_actions)
    if isinstance(data, Mapping):
        return from_arrays(**data, num_actions=num_actions)
    if isinstance(data, Iterable):
        return from_trajectories(data, num_actions=num_actions)
    raise InputError(
        f"data of the type {type(data).__name__} are not known; give a dataset's folder, a frame, arrays, "
        "or trajectories"
    )


def from_store(store: Store) -> Logs:
    """The transitions of a covshift dataset, whose states stay on disk."""
    ids = np.flatnonzero(store.is_transition)
    column = store.columns
    return Logs(
        StoreStates(store, ids),
        column["action"][ids],
        column["mu"][ids],
        column["reward"][ids + 1],
        column["terminated"][ids + 1],
        column["truncated"][ids + 1],
        column["is_initial"][ids],
        (np.cumsum(column["is_initial"], dtype=np.int32) - np.int32(1))[ids],
        store.num_actions,
    )


def from_minari(name: str, policy: str | None = None) -> Logs:
    """The transitions of a local Minari dataset with discrete actions.

    Args:
        name: of the dataset.
        policy: gives μ(a|s) where the dataset has no `infos["mu"]`, by name.
    """
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(import_minari(name, Path(folder) / "dataset", policy))
        logs = from_store(store)
        block = logs.block(np.arange(len(logs)))
    return Logs(
        ArrayStates(block.s_tm1, block.s_t),
        block.a_tm1,
        block.mu_tm1,
        block.r_t,
        block.terminated_t,
        block.truncated_t,
        block.is_initial_tm1,
        block.trajectory,
        logs.num_actions,
    )


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
    ended = _flags("terminated", terminated, size)
    cut = np.zeros(size, dtype=bool) if truncated is None else _flags("truncated", truncated, size)
    if len(action) != size:
        raise InputError(f"actions has {len(action)} entries, but states has {size}")
    if size == 0:
        raise InputError("the data hold no transition")
    labels = None if trajectory is None else np.asarray(trajectory)
    number = _number_trajectories(labels, ended | cut)
    last = np.append(np.diff(number) > 0, True)
    first = np.append(True, last[:-1])
    return Logs(
        ArrayStates(s_tm1, s_t),
        action,
        None if mu is None else np.asarray(mu, dtype=np.float64),
        _numbers("rewards", rewards),
        ended,
        cut | (last & ~ended),
        first if is_initial is None else _flags("is_initial", is_initial, size),
        number,
        int(action.max()) + 1 if num_actions is None else num_actions,
    )


def from_frame(
    frame: Any,
    *,
    state: str | Sequence[str] = "state",
    next_state: str | Sequence[str] | None = None,
    num_actions: int | None = None,
) -> Logs:
    """Transitions from a pandas or Polars frame with a row each.

    Columns: `trajectory` (a label), `state` (a whole number) or several columns of numbers, `action`,
    `reward` (received after the action), `terminated`; and where they are known `mu` (μ(a|s) of the action),
    `truncated`, `is_initial`, and the state after in `next_state` or in columns of the states' names with
    `next_` before them. Rows of a trajectory stand in the order of time.

    Without a next state the next row's state is taken. A trajectory that did not terminate then ends with
    a row that has a state and no action (a missing value, or -1).

    Args:
        frame: the logs.
        state: column or columns of the state.
        next_state: column or columns of the state after; by default `next_` and the state's, if there.
        num_actions: by default one more than the largest.
    """
    names = [str(name) for name in frame.columns]
    here = [state] if isinstance(state, str) else list(state)
    needed = [*here, "trajectory", "action", "reward", "terminated"]
    missing = [name for name in needed if name not in names]
    if missing:
        raise InputError(f"the frame lacks {', '.join(missing)}; it has {', '.join(names)}")
    column = {name: _to_numpy(frame[name]) for name in names}
    if next_state is None:
        there = [f"next_{name}" for name in here]
        found = all(name in names for name in there)
    else:
        there = [next_state] if isinstance(next_state, str) else list(next_state)
        if unknown := [name for name in there if name not in names]:
            raise InputError(f"the frame lacks {', '.join(unknown)}; it has {', '.join(names)}")
        found = True
    optional = [name for name in ("mu", "truncated", "is_initial") if name in names]
    states = _stack_columns(column, here)
    if found:
        return from_arrays(
            states,
            column["action"],
            column["reward"],
            _next_states(column, there, states),
            column["terminated"],
            trajectory=column["trajectory"],
            num_actions=num_actions,
            **{name: column[name] for name in optional},
        )
    return _from_rows(column, states, optional, num_actions)


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


def simulate_logs(
    mdp: FiniteMDP, mu: ArrayLike, num_steps: int, num_streams: int, rng: np.random.Generator
) -> Logs:
    """What a behavior policy would log in a finite MDP; rewards are the expected ones.

    A continuing MDP gives `num_streams` trajectories of `num_steps`, which start from d_μ. An episodic one
    gives whole episodes, and the last of each stream cut off.
    """
    table = as_policy_table("mu", mu, mdp.num_states, mdp.num_actions)
    steps = list(simulate(mdp, table, num_steps, num_streams, rng))
    s_tm1, a_tm1, r_t, s_t, ended = (
        np.stack(columns, axis=1).ravel() for columns in zip(*steps, strict=True)
    )
    stream = np.repeat(np.arange(num_streams), num_steps)
    truncated = np.append(np.diff(stream) > 0, True) & ~ended
    return from_arrays(
        s_tm1,
        a_tm1,
        r_t,
        s_t,
        ended,
        mu=table[s_tm1, a_tm1],
        truncated=truncated,
        num_actions=mdp.num_actions,
    )


def _from_rows(
    column: dict[str, NDArray[Any]],
    states: NDArray[Any],
    optional: Sequence[str],
    num_actions: int | None,
) -> Logs:
    """Transitions from rows whose next state is that of the next row."""
    actions = column["action"]
    closing = np.isnan(actions) if actions.dtype.kind == "f" else actions < 0
    closing |= (actions == -1) if actions.dtype.kind == "f" else False
    number = _number_trajectories(column["trajectory"], closing)
    last = np.append(np.diff(number) > 0, True)
    ended = _flags("terminated", np.where(closing, False, column["terminated"]), len(last))
    bad = last & ~closing & ~ended
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {int(last.sum())} trajectories do not terminate, and the state after their "
            "last action is not known: add a column next_state, or a last row with a state and no action"
        )
    bad = closing & ~last
    if bad.any():
        raise InputError(f"{int(bad.sum())} rows within a trajectory have no action")
    keep = ~closing
    following = np.minimum(np.arange(len(states)) + 1, len(states) - 1)
    return from_arrays(
        states[keep],
        actions[keep],
        column["reward"][keep],
        states[following][keep],
        ended[keep],
        trajectory=number[keep],
        num_actions=num_actions,
        **{name: column[name][keep] for name in optional},
    )


def _number_trajectories(labels: NDArray[Any] | None, ends: NDArray[np.bool_]) -> NDArray[np.int64]:
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


def _stack_columns(column: dict[str, NDArray[Any]], names: list[str]) -> NDArray[Any]:
    if len(names) == 1:
        return _states(names[0], column[names[0]])
    return np.stack([_numbers(name, column[name]) for name in names], axis=1)


def _next_states(
    column: dict[str, NDArray[Any]], names: list[str], states: NDArray[Any]
) -> NDArray[Any]:
    """The states after; where the episode terminated they need not be there."""
    ended = np.asarray(column["terminated"], dtype=bool)
    filled = {}
    for position, name in enumerate(names):
        values = column[name]
        if values.dtype.kind == "f":
            stand_in = states if states.ndim == 1 else states[:, position]
            values = np.where(ended & np.isnan(values), stand_in, values)
        filled[name] = values
    return _stack_columns(filled, names).astype(states.dtype)


def _states(name: str, values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "iu":
        return values
    if values.dtype == object and len(values) and hasattr(values[0], "__len__"):
        return np.stack([np.asarray(value) for value in values])
    numbers = _numbers(name, values)
    if (numbers == np.round(numbers)).all():
        return numbers.astype(np.int64)
    return numbers[:, None]


def _to_numpy(column: Any) -> NDArray[Any]:
    return np.asarray(column.to_numpy())


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
    if name != "rewards" and not np.isfinite(numbers).all():
        bad = int((~np.isfinite(numbers)).sum())
        raise InputError(f"{bad} of {numbers.size} entries of {name} are not finite numbers")
    return numbers


def _whole_numbers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "iu":
        as_float = _numbers(name, numbers)
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


def _flags(name: str, values: ArrayLike, size: int) -> NDArray[np.bool_]:
    flags = np.asarray(values)
    if flags.shape != (size,):
        raise InputError(f"{name} has shape {flags.shape}, but ({size},) is needed")
    bad = np.array([value not in (0, 1) for value in flags]) if flags.dtype == object else None
    if bad is not None and bad.any():
        raise InputError(f"{int(bad.sum())} of {size} entries of {name} are neither true nor false")
    return flags.astype(bool)
