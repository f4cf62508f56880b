"""Logs from a table: a pandas, Polars or Arrow table, a mapping of arrays, a list of rows, or a file."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.arrays import (
    as_flags,
    as_numbers,
    check_present,
    from_arrays,
    is_missing,
    number_trajectories,
    settle,
)
from covshift.estimation.columns import Columns, as_columns, has_columns
from covshift.estimation.labels import objects
from covshift.estimation.logs import Logs

Values: TypeAlias = dict[str, NDArray[Any]]


def from_frame(
    frame: Any,
    *,
    state: str | Sequence[str] = "state",
    action: str = "action",
    reward: str = "reward",
    terminated: str | bool = "terminated",
    next_state: str | Sequence[str] | None = None,
    trajectory: str | None = None,
    propensity: str | None = None,
    truncated: str | None = None,
    is_initial: str | None = None,
    num_actions: int | None = None,
    action_labels: Sequence[Hashable] | None = None,
) -> Logs:
    """Logs from a table with one row per transition; the arguments are names of its columns.

    The rows of a trajectory stand together, in the order of time. One column of whole numbers or of labels (words,
    or any hashable values) gives a table of states; several columns of numbers, or one of arrays, give vectors; several
    columns of which one holds words give labels that are tuples.

    Without a next state, the state of the next row is taken. A trajectory that did not terminate then ends
    with a row that has a state and no action (a missing value, or -1).

    Args:
        frame: a pandas or Polars frame, an Arrow table, a mapping from names to arrays, a list of rows that are
            mappings, or the path of a CSV or Parquet file or of a folder of Parquet files.
        state: column or columns of the state.
        action: the action, a whole number from 0 or a label.
        reward: the reward received after the action.
        terminated: whether the episode ended with the transition; False if no episode ever ends.
        next_state: column or columns of the state after; by default the state's with `next_` before them, if
            the table has them.
        trajectory: a label of any kind and size that the rows of a trajectory share; by default the column
            `trajectory` or, without one, a trajectory ends where `terminated` or `truncated` says so.
        propensity: the probability μ(a|s) of the action; by default the column `propensity` or `mu`, if there is one.
        truncated: whether the record was cut off after the transition; by default the column `truncated`, if there is one.
        is_initial: whether the state is a draw from the start distribution; by default the column
            `is_initial` or, without one, the first state of each trajectory is.
        num_actions: number of actions; by default one more than the largest in the data.
        action_labels: the labels of all actions, which number them in this order; by default those in the data.
    """
    if not has_columns(frame):
        raise InputError(
            f"{_kind(frame)} has no columns: give a pandas or Polars frame, an Arrow table, a mapping of arrays, a list "
            "of rows, or a CSV or Parquet file"
        )
    table = as_columns(frame)
    here, after = _names(state), None if next_state is None else _names(next_state)
    if after is None and all(f"next_{name}" in table.names for name in here):
        after = [f"next_{name}" for name in here]
    if after is not None and len(after) != len(here):
        raise InputError(
            f"the state has {len(here)} columns ({', '.join(here)}), but next_state has {len(after)} ({', '.join(after)})"
        )
    optional = {
        "trajectory": _found(table, trajectory, "trajectory"),
        "propensity": _found(table, propensity, "propensity", "mu"),
        "truncated": _found(table, truncated, "truncated"),
        "is_initial": _found(table, is_initial, "is_initial"),
    }
    needed = {"state": here, "action": [action], "reward": [reward]}
    if not isinstance(terminated, bool):
        needed["terminated"] = [terminated]
    elif terminated:
        raise InputError("terminated must be the name of a column, or False if no episode ends")
    needed |= {role: [name] for role, name in optional.items() if name is not None}
    _check_names(table, needed | ({} if after is None else {"next_state": after}))
    wanted = dict.fromkeys([*(n for names in needed.values() for n in names), *(after or [])])
    labels = [] if optional["trajectory"] is None else [optional["trajectory"]]
    column = table.read(list(wanted), labels)
    size = _size(column)
    actions, states = column[action], _stack_columns(column, here)
    given = {role: column[name] for role, name in optional.items() if name is not None}
    ended = column[terminated] if isinstance(terminated, str) else np.zeros(size, dtype=bool)
    if after is not None:
        kept = np.ones(size, dtype=bool)
        flags = as_flags("terminated", ended, size)
        for before, name in zip(here, after, strict=True):
            column[name] = _fill(name, column[name], column[before], flags)
        next_states = _stack_columns(column, after)
    else:
        kept, ended = _actions_taken(actions, ended, given.get("trajectory"), action_labels is None)
        next_states = np.concatenate([states[1:], states[-1:]])
    if (states.dtype.kind in "iu") != (next_states.dtype.kind in "iu"):
        # One of the two has fractions, so that both are vectors of one entry.
        states, next_states = (
            s.reshape(len(s), -1) if s.dtype != object else s for s in (states, next_states)
        )
    rest = {("mu" if role == "propensity" else role): v[kept] for role, v in given.items()}
    return from_arrays(
        states[kept],
        actions[kept],
        column[reward][kept],
        next_states[kept],
        ended[kept],
        num_actions=num_actions,
        action_labels=action_labels,
        **rest,
    )


def _names(names: str | Sequence[str]) -> list[str]:
    made = [names] if isinstance(names, str) else list(names)
    if not made:
        raise InputError("the state needs at least one column: give its names, such as ['x', 'y']")
    return made


def _found(table: Columns, asked: str | None, *usual: str) -> str | None:
    """The column asked for or, if none was, the first usual one that the table has."""
    if asked is not None:
        return asked
    return next((name for name in usual if name in table.names), None)


def _check_names(table: Columns, needed: dict[str, list[str]]) -> None:
    lacking = {
        role: [name for name in names if name not in table.names] for role, names in needed.items()
    }
    if missing := [name for names in lacking.values() for name in names]:
        role = next(role for role, names in lacking.items() if names)
        example = (
            "state=['x', 'y'] (--state x,y"
            if role == "state"
            else f"{role}='…' (--{role.replace('_', '-')} …"
        )
        hint = (
            " If no episode ever ends, say terminated=False (--terminated never)."
            if role == "terminated"
            else ""
        )
        have = ", ".join(table.names) or "no columns"
        raise InputError(
            f"{table.where} lacks {', '.join(missing)}; it has {have}. Say which column holds the {role}, such as {example} "
            f"on the command line).{hint}"
        )


def _size(column: Values) -> int:
    """The number of rows, which all columns share."""
    sizes = {name: len(values) if values.ndim else 0 for name, values in column.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(
            "the columns have different lengths: " + ", ".join(f"{n} {k}" for n, k in sizes.items())
        )
    size = next(iter(sizes.values()))
    if size == 0:
        raise InputError("the data hold no transition")
    return size


def _actions_taken(
    actions: NDArray[Any], ended: NDArray[Any], labels: NDArray[Any] | None, marked: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which rows are transitions, while the others close a trajectory with its last state; and which rows end an episode.

    Raises:
        InputError: a row within a trajectory has no action, or the last state of a trajectory is unknown.
    """
    closing = is_missing(actions)
    if marked and actions.dtype.kind in "iuf":
        closing |= actions == -1
    ended = as_flags("terminated", np.where(closing, False, ended), len(closing))
    number = number_trajectories(labels, closing | ended)
    last = np.append(np.diff(number) > 0, True)
    bad = last & ~closing & ~ended
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {int(last.sum())} trajectories do not terminate, and the state after their "
            "last action is not known: add a column next_state, or a last row with a state and no action"
        )
    bad = closing & ~last
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} rows within a trajectory have no action, the first is row {int(bad.argmax())} (counted "
            "from 0)"
        )
    return ~closing, ended


def _fill(
    name: str, values: NDArray[Any], before: NDArray[Any], ended: NDArray[np.bool_]
) -> NDArray[Any]:
    """The column of a next state, which may be missing where the episode terminated."""
    if values.shape != before.shape:
        raise InputError(f"{name} has shape {values.shape}, but the state has {before.shape}")
    return np.where(ended.reshape(-1, *[1] * (values.ndim - 1)), before, values)


def _stack_columns(column: Values, names: list[str]) -> NDArray[Any]:
    """Whole numbers, vectors of numbers, or labels."""
    for name in names:
        check_present(name, column[name])
    settled = [settle(column[name]) for name in names]
    if len(names) > 1:
        if any(values.dtype == object for values in settled):
            return objects(list(zip(*(values.tolist() for values in settled), strict=True)))
        rows = [as_numbers(name, v) for name, v in zip(names, settled, strict=True)]
        if wide := [name for name, values in zip(names, rows, strict=True) if values.ndim > 1]:
            raise InputError(
                f"{wide[0]} holds arrays: a state is one such column, or several of numbers"
            )
        return np.stack(rows, axis=1)
    (values,) = settled
    if values.dtype.kind != "f" or values.ndim > 1:
        return values
    numbers = as_numbers(names[0], values)
    if (numbers == np.round(numbers)).all() and np.abs(numbers).max() < 1 << 53:
        return numbers.astype(np.int64)
    return numbers[:, None]


def _kind(data: Any) -> str:
    return f"'{data}'" if isinstance(data, str) else f"data of the type {type(data).__name__}"
