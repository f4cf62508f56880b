"""Logs from a pandas or Polars frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.arrays import as_flags, as_numbers, from_arrays, number_trajectories
from covshift.estimation.logs import Logs


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
    column = {name: np.asarray(frame[name].to_numpy()) for name in names}
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


def _stack_columns(column: dict[str, NDArray[Any]], names: list[str]) -> NDArray[Any]:
    if len(names) == 1:
        return _states(names[0], column[names[0]])
    return np.stack([as_numbers(name, column[name]) for name in names], axis=1)


def _next_states(
    column: dict[str, NDArray[Any]], names: list[str], states: NDArray[Any]
) -> NDArray[Any]:
    """The states after; where the episode terminated they need not be there."""
    ended = as_flags("terminated", column["terminated"], len(states))
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
    numbers = as_numbers(name, values)
    if (numbers == np.round(numbers)).all():
        return numbers.astype(np.int64)
    return numbers[:, None]
