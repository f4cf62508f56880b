"""Logs from NumPy arrays and from trajectories.

Unusable rows are reported in one `InputError` with their number; none is dropped silently.
"""

from __future__ import annotations

import numbers
from collections.abc import Hashable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from covshift.errors import InputError
from covshift.estimation.columns import as_column
from covshift.estimation.labels import Labels, as_label_list, objects
from covshift.estimation.logs import Logs, Trajectory, check_finite
from covshift.validation import check_count

MOST_STATES, MOST_ACTIONS = 1_000_000, 10_000
"""Whole numbers from 0 up to these are numbers of states and actions; beyond them they are labels."""


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
    action_labels: Sequence[Hashable] | None = None,
) -> Logs:
    """Logs from arrays with one entry per transition, trajectory after trajectory, in the order of time.

    Args:
        states: the states before: whole numbers from 0, arrays of numbers, or labels such as words.
        actions: whole numbers from 0, or labels.
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
        action_labels: the labels of all actions, which number them in this order; by default those in the data.

    Raises:
        InputError: a value cannot be used, or a transition does not lead to the next one of its trajectory.
    """
    before, after = as_column("states", states), as_column("next_states", next_states)
    size = len(before) if before.ndim else 0
    if size == 0:
        raise InputError("the data hold no transition")
    ended = as_flags("terminated", terminated, size)
    cut = as_flags(
        "truncated", np.zeros(size, dtype=bool) if truncated is None else truncated, size
    )
    s_tm1, s_t, state_labels = _as_states(before, after, ended)
    action, made_labels = _as_actions(as_column("actions", actions), action_labels)
    if len(action) != size:
        raise InputError(f"actions has {len(action)} entries, but states has {size}")
    number = number_trajectories(
        None if trajectory is None else as_column("trajectory", trajectory), ended | cut
    )
    last = np.append(np.diff(number) > 0, True)
    first = np.append(True, last[:-1])
    reward = as_numbers("rewards", rewards)
    check_order(s_tm1, s_t, last | ended, (action, reward), state_labels)
    return Logs(
        s_tm1.__getitem__,
        s_t.__getitem__,
        action,
        None if mu is None else as_numbers("mu", mu, finite=False),
        reward,
        ended,
        cut | (last & ~ended),
        first if is_initial is None else as_flags("is_initial", is_initial, size),
        number,
        _count_actions(action, num_actions, made_labels),
        state_labels=state_labels,
        action_labels=made_labels,
    )


def _as_states(
    before: NDArray[Any], after: NDArray[Any], ended: NDArray[np.bool_]
) -> tuple[NDArray[Any], NDArray[Any], Labels | None]:
    """States as they are if they are arrays of numbers or whole numbers from 0, else as numbers of labels."""
    before, after = (settle(array) for array in (before, after))
    if len(after) != len(before) or (before.dtype != object and after.shape != before.shape):
        raise InputError(f"next_states has shape {after.shape}, but states has {before.shape}")
    if before.dtype != object and after.dtype != object:
        s_t = after.astype(np.result_type(before, after))
        s_t[ended] = before[ended]  # There is no state after an end, whatever the column says.
        check_finite("states", before)
        check_finite("next_states", s_t)
        if before.ndim > 1 or before.dtype.kind == "f" or s_t.dtype.kind == "f":
            return before, s_t, None
        low, high = (int(f(g(before), g(s_t))) for f, g in ((min, np.min), (max, np.max)))
        if low >= 0 and high <= MOST_STATES:
            return before, s_t, None
    old = objects(as_label_list("state", before))
    new = objects(as_label_list("state", after))
    new[ended] = old[ended]
    check_present("states", old)
    check_present("next_states", new)
    labels = Labels.of("state", old, new)
    return labels.encode(old), labels.encode(new), labels


def _as_actions(
    actions: NDArray[Any], given: Sequence[Hashable] | None
) -> tuple[NDArray[np.int64], Labels | None]:
    """Whole numbers from 0 as they are, others and labels as numbers of labels."""
    check_present("actions", actions)
    actions = settle(actions)
    if given is not None:
        if len(set(given)) < len(given):
            raise InputError(f"action_labels names an action twice: {list(given)}")
        labels = Labels("action", tuple(given))
        return labels.encode(actions), labels
    if actions.dtype != object and actions.max(initial=0) <= MOST_ACTIONS:
        return _whole_numbers("actions", actions), None
    made = objects(as_label_list("action", actions))
    labels = Labels.of("action", made)
    if len(labels) > MOST_ACTIONS:
        raise InputError(
            f"the data have {len(labels):,} different actions, but at most {MOST_ACTIONS:,} can be handled: actions must "
            "be discrete, so put numbers that vary continuously into bins"
        )
    return labels.encode(made), labels


def _count_actions(
    action: NDArray[np.int64], num_actions: int | None, labels: Labels | None
) -> int:
    if labels is not None:
        if num_actions not in (None, len(labels)):
            raise InputError(
                f"num_actions is {num_actions}, but there are {len(labels)} labels of actions: {labels!r}; name all of "
                "them with action_labels=[…] (--action-labels on the command line)"
            )
        return len(labels)
    return int(action.max()) + 1 if num_actions is None else check_num_actions(num_actions)


def check_num_actions(given: int) -> int:
    """A number of actions that a policy's table can have."""
    if isinstance(given, bool) or not isinstance(given, int | np.integer):
        raise InputError(f"num_actions must be a whole number, but it is {given!r}")
    return check_count("num_actions", given, MOST_ACTIONS)


def settle(array: NDArray[Any]) -> NDArray[Any]:
    """Objects as numbers if they all are numbers or arrays of numbers of one shape; words as objects."""
    if array.dtype.kind == "b":
        return array.astype(np.int64)
    if array.dtype.kind in "iuf":
        return array
    if array.dtype.kind == "O" and array.ndim == 1 and len(array):
        first, kinds = array[0], set(map(type, array))
        vectors = kinds <= {np.ndarray, list} and all(len(v) == len(first) for v in array)
        whole = all(issubclass(kind, int | np.integer) for kind in kinds)
        if whole and not all(abs(v) < 1 << 63 for v in array):
            return array
        if vectors or all(issubclass(kind, numbers.Real | Decimal) for kind in kinds):
            try:
                made = np.array(array.tolist())
            except ValueError:
                return array
            return settle(made.astype(float) if made.dtype == object and not vectors else made)
        return array
    if array.dtype.kind == "O" and array.ndim > 1:
        try:
            return array.astype(float)
        except (TypeError, ValueError):
            return array
    return array.astype(object)


def check_order(
    s_tm1: NDArray[Any],
    s_t: NDArray[Any],
    last: NDArray[np.bool_],
    others: tuple[NDArray[Any], ...] = (),
    labels: Labels | None = None,
) -> None:
    """Refuses transitions that do not lead to the next one of their trajectory.

    Args:
        s_tm1: the states before.
        s_t: the states after.
        last: which transitions no other one of their trajectory follows.
        others: further columns, for finding rows that occur twice.
        labels: labels of the states, if these are numbers of labels.
    """
    broken = ~last[:-1] & ~_equal(s_t[:-1], s_tm1[1:])
    if not broken.any():
        return
    row = int(broken.argmax())
    # Signs of the usual causes, over all rows that another one follows.
    inner = np.flatnonzero(~last[:-1])
    same = _equal(s_tm1[inner], s_tm1[inner + 1]) & _equal(s_t[inner], s_t[inner + 1])
    for column in others:
        same &= column[inner] == column[inner + 1]
    twice = inner[same & broken[inner]]
    if _equal(s_t[inner + 1], s_tm1[inner]).mean() > 0.9:
        cause = (
            "each next_state is the state of the row before: the rows run backwards in time, or next_state is shifted "
            "the wrong way"
        )
    elif _equal(s_t[inner], s_tm1[inner]).mean() > 0.9:
        cause = "next_state repeats state: shift it by one row, or leave it out"
    elif len(twice) == int(broken.sum()):
        cause = f"row {twice[0] + 1} repeats row {twice[0]}: drop repeated rows"
    else:
        cause = "sort the rows by trajectory and time and drop repeated ones; where steps are missing, start a new trajectory"
    shown, found = (s if labels is None else labels.decode(s) for s in (s_t[row], s_tm1[row + 1]))
    raise InputError(
        f"{int(broken.sum()):,} of {len(inner):,} transitions do not lead to the next row of their trajectory. The first is row "
        f"{row} (counted from 0): its next_state is {_show(shown)}, but row {row + 1} starts in {_show(found)}. The fix: {cause}"
    )


def _equal(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Which states are equal, up to the rounding of a text file."""
    if not len(left):
        return np.zeros(0, dtype=bool)
    if left.dtype.kind == "f" or right.dtype.kind == "f":
        same = np.isclose(left, right, rtol=1e-5, atol=1e-6)
    else:
        same = left == right
    return np.asarray(same.reshape(len(left), -1).all(axis=1))


def _show(state: Any) -> str:
    plain = (
        state.item() if isinstance(state, np.ndarray | np.generic) and state.ndim == 0 else state
    )
    text = np.array2string(plain, precision=6) if isinstance(plain, np.ndarray) else repr(plain)
    return text if len(text) < 80 else f"{text[:76]} …"


def from_trajectories(
    trajectories: Iterable[Trajectory],
    *,
    num_actions: int | None = None,
    action_labels: Sequence[Hashable] | None = None,
) -> Logs:
    """Logs from trajectories, in the order given; `num_actions` and `action_labels` are those of `from_arrays`."""
    parts: list[dict[str, NDArray[Any]]] = []
    for number, given in enumerate(trajectories):
        try:
            trajectory = Trajectory(*given)
        except TypeError as error:
            raise InputError(
                f"trajectory {number} is {given!r:.80}, but states, actions, rewards and terminated are needed, as in "
                "Trajectory(states, actions, rewards, terminated)"
            ) from error
        states = settle(as_column("states", trajectory.states))
        actions = as_column("actions", trajectory.actions)
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
            "rewards": as_numbers("rewards", trajectory.rewards),
            "next_states": states[1:],
            "terminated": (steps == steps[-1]) & bool(trajectory.terminated),
            "trajectory": np.full(len(steps), number),
            "is_initial": (steps == 0) & bool(trajectory.is_initial),
        }
        if trajectory.mu is not None:
            part["mu"] = as_numbers("mu", trajectory.mu, finite=False)
        parts.append(part)
    if not parts:
        raise InputError("the data hold no transition")
    without_mu = sum("mu" not in part for part in parts)
    if 0 < without_mu < len(parts):
        raise InputError(f"{without_mu} of {len(parts)} trajectories have no mu")
    return from_arrays(
        **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]},
        num_actions=num_actions,
        action_labels=action_labels,
    )


def number_trajectories(labels: NDArray[Any] | None, ends: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Each row's trajectory as 0, 1, …, by its label; without labels a trajectory stops at each of `ends`."""
    if labels is None:
        return np.concatenate([[0], np.cumsum(ends[:-1])]).astype(np.int64)
    if labels.shape != ends.shape:
        raise InputError(f"trajectory has shape {labels.shape}, but {ends.shape} is needed")
    check_present("trajectory", labels)
    changes = np.append(True, labels[1:] != labels[:-1])
    heads = as_label_list("trajectory", labels[changes])
    try:
        seen = set(heads)
    except TypeError as error:
        raise InputError(f"a label of a trajectory must be hashable: {error}") from error
    if scattered := len(heads) - len(seen):
        begins = {head: i for i, head in reversed([*enumerate(heads)])}
        again = next(i for i, head in enumerate(heads) if begins[head] < i)
        raise InputError(
            f"the rows of {scattered} trajectories are not together; sort by trajectory and time. The first is "
            f"{heads[again]!r}, which begins again at row {int(np.flatnonzero(changes)[again])} (counted from 0)"
        )
    return np.asarray(np.cumsum(changes) - 1, dtype=np.int64)


def is_missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which entries are None, NaN or another mark for a missing value."""
    if values.dtype.kind == "f":
        return np.asarray(np.isnan(values))
    if values.dtype != object:
        return np.zeros(values.shape, dtype=bool)
    kinds = set(map(type, values.ravel()))
    if kinds <= {str, bytes, int, bool, tuple}:
        return np.zeros(values.shape, dtype=bool)
    # The mark of pandas, NA, is neither equal to itself nor different.
    marks = [
        v is None
        or type(v).__name__ in ("NAType", "NaTType")
        or (isinstance(v, float | np.floating | Decimal) and v != v)
        for v in values.ravel()
    ]
    return np.array(marks, dtype=bool).reshape(values.shape)


def check_present(name: str, values: NDArray[Any]) -> None:
    """Refuses missing values."""
    missing = is_missing(values)
    if missing.any():
        raise InputError(
            f"{int(missing.sum()):,} of {missing.size:,} entries of {name} are missing, the first is in row "
            f"{int(np.argwhere(missing)[0, 0])} (counted from 0)"
        )


def as_numbers(name: str, values: ArrayLike, *, finite: bool = True) -> NDArray[np.float64]:
    """Floats, unless told otherwise finite ones."""
    try:
        made = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must hold numbers: {error}") from error
    if finite:
        check_finite(name, made)
    return made


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


def _whole_numbers(name: str, values: NDArray[Any]) -> NDArray[np.int64]:
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise InputError(f"{name} has shape {values.shape}, but one axis is needed")
    if values.dtype.kind not in "iu":
        made = as_numbers(name, values)
        bad = made != np.round(made)
        if bad.any():
            raise InputError(
                f"{int(bad.sum())} of {len(bad)} entries of {name} are not whole numbers, the first is "
                f"{made[bad][0]}: actions must be discrete, so put numbers that vary continuously into bins"
            )
    return values.astype(np.int64)
