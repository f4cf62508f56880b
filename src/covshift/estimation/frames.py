"""Logs from a pandas or Polars frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.arrays import as_flags, as_numbers, from_arrays, number_trajectories
from covshift.estimation.logs import Logs

Columns: TypeAlias = dict[str, NDArray[Any]]


def from_frame(
    frame: Any,
    *,
    state: str | Sequence[str] = "state",
    next_state: str | Sequence[str] | None = None,
    num_actions: int | None = None,
) -> Logs:
    """Logs from a pandas or Polars frame with one row per transition.

    Required columns: `trajectory` (a label), `state` (a whole number) or several columns of numbers, `action`,
    `reward` (received after the action) and `terminated`. Optional columns: `mu` (the probability μ(a|s) of the
    action), `truncated`, `is_initial`, and the state after, in `next_state` or in columns named like the
    state's with `next_` before them. The rows of a trajectory are in the order of time.

    Without a next state, the state of the next row is taken. A trajectory that did not terminate then ends
    with a row that has a state and no action (a missing value, or -1).

    Args:
        frame: the logs.
        state: column or columns of the state.
        next_state: column or columns of the state after; by default the state's with `next_` before them, if
            the frame has them.
        num_actions: number of actions; by default one more than the largest in the data.
    """
    names = [str(name) for name in frame.columns]
    here = [state] if isinstance(state, str) else list(state)
    if next_state is None:
        there = [f"next_{name}" for name in here]
        has_next, asked = all(name in names for name in there), []
    else:
        there = asked = [next_state] if isinstance(next_state, str) else list(next_state)
        has_next = True
    needed = [*here, "trajectory", "action", "reward", "terminated", *asked]
    if missing := [name for name in needed if name not in names]:
        raise InputError(f"the frame lacks {', '.join(missing)}; it has {', '.join(names)}")
    column = {name: np.asarray(frame[name].to_numpy()) for name in names}
    states = _stack_columns(column, here)
    if has_next:
        kept = np.ones(len(states), dtype=bool)
        next_states = _next_states(column, there, states)
    else:
        kept = _actions_taken(column)
        column["terminated"] = np.where(kept, column["terminated"], False)
        next_states = np.concatenate([states[1:], states[-1:]])
    optional = [name for name in ("mu", "truncated", "is_initial") if name in names]
    return from_arrays(
        states[kept],
        column["action"][kept],
        column["reward"][kept],
        next_states[kept],
        column["terminated"][kept],
        trajectory=column["trajectory"][kept],
        num_actions=num_actions,
        **{name: column[name][kept] for name in optional},
    )


def _actions_taken(column: Columns) -> NDArray[np.bool_]:
    """Which rows are transitions; the others close a trajectory with its last state.

    Raises:
        InputError: a row within a trajectory has no action, or the last state of a trajectory is unknown.
    """
    actions = column["action"]
    actions = actions if actions.dtype.kind in "iuf" else as_numbers("action", actions)
    closing = np.isnan(actions) | (actions == -1) if actions.dtype.kind == "f" else actions < 0
    number = number_trajectories(column["trajectory"], closing)
    last = np.append(np.diff(number) > 0, True)
    ended = as_flags("terminated", np.where(closing, False, column["terminated"]), len(last))
    bad = last & ~closing & ~ended
    if bad.any():
        raise InputError(
            f"{int(bad.sum())} of {int(last.sum())} trajectories do not terminate, and the state after their "
            "last action is not known: add a column next_state, or a last row with a state and no action"
        )
    bad = closing & ~last
    if bad.any():
        raise InputError(f"{int(bad.sum())} rows within a trajectory have no action")
    return ~closing


def _next_states(column: Columns, names: list[str], states: NDArray[Any]) -> NDArray[Any]:
    """The states after; they may be missing where the episode terminated."""
    ended = as_flags("terminated", column["terminated"], len(states))
    filled = {}
    for index, name in enumerate(names):
        values = column[name]
        if values.dtype.kind == "f":
            stand_in = states if states.ndim == 1 else states[:, index]
            values = np.where(ended & np.isnan(values), stand_in, values)
        filled[name] = values
    return _stack_columns(filled, names).astype(states.dtype)


def _stack_columns(column: Columns, names: list[str]) -> NDArray[Any]:
    """One column as whole numbers where it holds such; several as rows of numbers."""
    if len(names) > 1:
        return np.stack([as_numbers(name, column[name]) for name in names], axis=1)
    values = column[names[0]]
    if values.dtype.kind in "iu":
        return values
    if values.dtype == object and len(values) and hasattr(values[0], "__len__"):
        return np.stack([np.asarray(value) for value in values])
    numbers = as_numbers(names[0], values)
    if (numbers == np.round(numbers)).all():
        return numbers.astype(np.int64)
    return numbers[:, None]
