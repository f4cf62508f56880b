"""Policies as users give them: a name, a table, a function, a mapping, a frame, or a trained model."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from covshift.data.policies import Function, Policy, Table, import_object, parse_policy
from covshift.errors import InputError
from covshift.estimation.columns import Columns, as_columns, has_columns, is_table_file
from covshift.estimation.labels import as_label_list, objects, shorten
from covshift.estimation.logs import Logs

PolicyLike: TypeAlias = Any
"""Whatever `as_policy` takes."""

Rows: TypeAlias = NDArray[np.float64]

_TOLERANCE = 1e-5


def as_policy(policy: PolicyLike, num_actions: int, logs: Logs | None = None) -> Policy:
    """The policy that a user means.

    **Functions.** A function is first called with a batch, an array of several states. If it returns a row of
    probabilities or one action for each of them, it is a function of a batch. Otherwise it is called with one state at a
    time, and returns the probabilities of the actions, a mapping from actions to probabilities, or an action.

    **Models.** An object with `predict_proba`, as of scikit-learn, gives these probabilities; a Stable-Baselines3 model that acts
    at random, as PPO does, those of its distribution. Of any other object with `predict`, as DQN and the models of
    d3rlpy, the policy takes the action that `predict` returns. Give `model.predict` itself for the predicted action of a
    classifier.

    Args:
        policy: a name `uniform | file:P.npy | file:P.csv | run:DIR,epsilon=E | module:name`; a function; a model; a table of
            states × actions; a mapping from states to actions, to mappings from actions to probabilities, or to
            probabilities of all actions; a frame, which holds the state and one column per action, or the columns
            `action` and `probability`; or an object with a method `probabilities`.
        num_actions: number of actions of the environment.
        logs: the data that the policy is for. Their labels name states and actions.

    Raises:
        InputError: it is none of these, or not a policy over that many actions.
    """
    if isinstance(policy, str):
        kind, _, rest = policy.partition(":")
        if kind == "file" and is_table_file(rest):
            return as_policy(as_columns(rest), num_actions, logs)
        if kind in ("uniform", "run", "file") or not rest:
            return parse_policy(policy, num_actions)
        return as_policy(import_object("policy", policy), num_actions, logs)
    if hasattr(policy, "probabilities"):
        return _over_labels(cast(Policy, policy), logs)
    actions = _Actions(num_actions, logs)
    if isinstance(policy, Columns) or (has_columns(policy) and not isinstance(policy, Mapping)):
        return _over_labels(_read_frame(policy, actions, logs), logs)
    if isinstance(policy, Mapping):
        return _over_labels(_lookup("the policy", policy, actions), logs)
    if (model := _as_function(policy)) is not None:
        return _over_labels(_of_function(_name(policy), model, actions, logs), logs)
    try:
        table = np.asarray(policy, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"a {type(policy).__name__} is not a policy: give a function of states, a table of states × actions, a mapping "
            "from states to actions or probabilities, a frame, or a model with predict"
        ) from None
    return _over_labels(_table(table, num_actions), logs)


@final
@dataclass(frozen=True, eq=False)
class Lookup:
    """Probabilities by state, for states that can be looked up: numbers, labels, or vectors by all of their entries."""

    name: str
    numbers: dict[Any, int]
    rows: Rows
    needs_observations: bool = True

    def probabilities(self, observations: NDArray[Any]) -> Rows:
        """The row of each state."""
        keys = as_label_list("state", np.asarray(observations))
        found = np.array([self.numbers.get(key, -1) for key in keys], dtype=np.int64)
        if (found < 0).any():
            lacking = list(dict.fromkeys(key for key, k in zip(keys, found, strict=True) if k < 0))
            raise InputError(
                f"{self.name} says nothing about {len(lacking):,} states of the data: {shorten(lacking)}; it has "
                f"{shorten(list(self.numbers))}"
            )
        return np.asarray(self.rows[found])

    def description(self) -> dict[str, str]:
        """Its name."""
        return {"policy": self.name}


class _Actions:
    """The actions of the data, by whatever name an answer of a policy calls them."""

    def __init__(self, count: int, logs: Logs | None) -> None:
        self.count = count
        self.labels = None if logs is None else logs.action_labels

    @property
    def names(self) -> list[Any]:
        return list(range(self.count)) if self.labels is None else list(self.labels.values)

    def number(self, action: Any) -> int:
        if self.labels is not None:
            return int(self.labels.encode([_plain(action)])[0])
        plain = _plain(action)
        whole = isinstance(plain, int | float) and plain == int(plain)
        if not whole or not 0 <= plain < self.count:
            raise InputError(
                f"the policy names the action {plain!r}, but the data have the actions 0 … {self.count - 1}; if the environment "
                "has more, give their number to as_logs as num_actions (--num-actions on the command line)"
            )
        return int(plain)

    def row(self, answer: Any) -> Rows:
        """Probabilities from an answer for one state: a mapping, probabilities, or an action."""
        row = np.zeros(self.count)
        if isinstance(answer, Mapping):
            for action, probability in answer.items():
                row[self.number(action)] += float(probability)
            return row
        several = isinstance(answer, list | tuple | np.ndarray) or hasattr(answer, "detach")
        if several and not (self.labels is not None and self._is_label(answer)):
            found = _array(answer)
            if found.size != 1 or self.count == 1:
                if found.shape != (self.count,):
                    raise InputError(
                        f"the policy gives {found.size} probabilities for a state, but the data have {self.count} actions; "
                        "if the environment has more, give their number to as_logs as num_actions (--num-actions on the "
                        "command line)"
                    )
                return np.asarray(found, dtype=np.float64)
            answer = found.ravel()[0]
        row[self.number(answer)] = 1.0
        return row

    def one_hot(self, actions: list[Any]) -> Rows:
        numbers = [self.number(action) for action in actions]
        return np.eye(self.count)[numbers]

    def _is_label(self, answer: Any) -> bool:
        return (
            isinstance(answer, tuple) and self.labels is not None and answer in self.labels.values
        )


def _as_function(policy: Any) -> Callable[[Any], Any] | None:
    """The function of states that a model or a function is."""
    if hasattr(policy, "predict_proba") and hasattr(policy, "classes_"):
        classes = policy.classes_.tolist()
        return lambda states: [
            dict(zip(classes, row, strict=True)) for row in policy.predict_proba(_flat(states))
        ]
    inner = getattr(policy, "policy", None)
    if hasattr(inner, "get_distribution") and hasattr(inner, "obs_to_tensor"):
        return lambda states: _distribution(inner, states)
    if hasattr(policy, "predict"):
        known = inspect.signature(policy.predict).parameters
        options = {"deterministic": True} if "deterministic" in known else {}

        def predict(states: Any) -> Any:
            answer = policy.predict(states, **options)
            return answer[0] if isinstance(answer, tuple) else answer

        return predict
    return policy if callable(policy) else None


def _flat(states: Any) -> Any:
    """Rows, as scikit-learn wants them."""
    states = np.asarray(states)
    return states.reshape(len(states), -1)


def _distribution(inner: Any, states: Any) -> Rows:
    found = inner.get_distribution(inner.obs_to_tensor(states)[0]).distribution
    if not hasattr(found, "probs"):
        raise InputError("the model's actions are not discrete, which estimation needs")
    return _array(found.probs)


def _of_function(
    name: str, function: Callable[[Any], Any], actions: _Actions, logs: Logs | None
) -> Function:
    """A function of a batch that returns rows of probabilities, whatever the given one takes and returns."""

    def rows_of(answers: Any, count: int) -> Rows | None:
        """Rows from the answer for a batch; None if it cannot be one."""
        if isinstance(answers, list) and len(answers) == count and isinstance(answers[0], Mapping):
            return np.stack([actions.row(answer) for answer in answers])
        if isinstance(answers, Mapping | str) or answers is None:
            return None
        found = _array(answers)
        if found.shape == (count, actions.count) and found.dtype.kind in "iufb":
            return found.astype(np.float64)
        if found.shape in ((count,), (count, 1)):
            return actions.one_hot(found.ravel().tolist())
        return None

    def of_batch(states: NDArray[Any]) -> Rows:
        found = rows_of(answers := function(states), len(states))
        if found is None:
            raise InputError(
                f"{name} returned shape {np.shape(answers)} for {len(states)} states, but ({len(states)}, {actions.count}) is "
                "needed"
            )
        return found

    def of_each(states: NDArray[Any]) -> Rows:
        return np.stack([actions.row(function(state)) for state in states])

    if logs is None:
        return Function(name, of_batch, actions.count)
    probe = _probe(logs, actions.count)
    failure: Exception | None = None
    try:
        if rows_of(function(probe), len(probe)) is not None:
            return Function(name, of_batch, actions.count)
    except Exception as error:  # Whatever a function of one state does with a batch.
        failure = error
    try:
        of_each(probe[:1])
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        batch = (
            ""
            if failure is None
            else f"; for a batch of states: {type(failure).__name__}: {failure}"
        )
        raise InputError(
            f"{name} is no policy. For one state: {why}{batch}. A policy returns the probabilities of the {actions.count} "
            "actions, or an action, for a state or for each state of a batch"
        ) from error
    return Function(name, of_each, actions.count)


def _probe(logs: Logs, num_actions: int) -> NDArray[Any]:
    """A batch of states whose number is not that of the actions nor of the entries of a state, so that shapes tell."""
    first = logs.states(np.zeros(1, dtype=np.int64))
    count = num_actions + 1
    count += count in first.shape[1:]
    states = logs.states(np.arange(count) % logs.num_transitions)
    return states if logs.state_labels is None else logs.state_labels.decode(states)


def _over_labels(policy: Policy, logs: Logs | None) -> Policy:
    """The policy as a function of the numbers that stand for labels: all of its rows in one table."""
    if logs is None or logs.state_labels is None:
        return policy
    labels = logs.state_labels
    whole = all(isinstance(value, int) for value in labels.values)
    named = np.array(labels.values) if whole else labels.decode(np.arange(len(labels)))
    return _table(policy.probabilities(named), logs.num_actions)


def _table(table: Rows, num_actions: int) -> Table:
    if table.ndim != 2 or table.shape[1] != num_actions:
        raise InputError(
            f"the policy's table has shape {table.shape}, but (states, {num_actions}) is needed; if the environment has more "
            "actions than the data, give their number to as_logs as num_actions (--num-actions on the command line)"
        )
    return Table(
        rows := _checked("the policy's table", table), hashlib.sha256(rows.tobytes()).hexdigest()
    )


def _checked(name: str, table: Rows) -> Rows:
    sums = table.sum(axis=1)
    bad = ~(np.isfinite(sums) & (table >= 0).all(axis=1) & (np.abs(sums - 1) < _TOLERANCE))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{int(bad.sum())} of {len(bad)} rows of {name} are not probability vectors, the "
            f"first is row {row}: {table[row]}"
        )
    return np.asarray(table / sums[:, None])


def _lookup(name: str, policy: Mapping[Any, Any], actions: _Actions) -> Lookup:
    if not policy:
        raise InputError(f"{name} is an empty mapping")
    rows = np.stack([actions.row(answer) for answer in policy.values()])
    numbers = {_plain(state): number for number, state in enumerate(policy)}
    return Lookup(name, numbers, _checked(name, rows))


def _read_frame(frame: Any, actions: _Actions, logs: Logs | None) -> Policy:
    """A frame with the columns `action` and `probability`, or with one column per action; the other columns are the state."""
    table = frame if isinstance(frame, Columns) else as_columns(frame)
    column = table.read(table.names, [])
    by_pair = {"action", "probability"} <= set(table.names)
    wide = {str(name): number for number, name in enumerate(actions.names)}
    known = {"action", "probability"} if by_pair else set(wide)
    if not by_pair and (lacking := [name for name in wide if name not in column]):
        raise InputError(
            f"{table.where} of the policy lacks the actions {', '.join(lacking)}; it has {', '.join(table.names)}. It needs one "
            "column per action, named after it, or the columns action and probability"
        )
    states = [column[name] for name in table.names if name not in known]
    if states:
        keys = as_label_list("state", states[0])
        if len(states) > 1:
            keys = list(zip(*(as_label_list("state", one) for one in states), strict=True))
    else:
        index = getattr(frame, "index", None)
        keys = list(range(len(next(iter(column.values()))))) if index is None else index.tolist()
    # A column such as 1.0 names the same state as 1, and a number of a text file the same as the word in the data.
    if logs is not None and logs.state_labels is not None:
        words = {str(value): value for value in logs.state_labels.values}
        keys = [
            key if key in logs.state_labels.values else words.get(str(key), key) for key in keys
        ]
    if by_pair:
        made: dict[Any, Any] = {}
        named = as_label_list("action", column["action"])
        for key, action, p in zip(keys, named, column["probability"].tolist(), strict=True):
            made.setdefault(key, {})[action] = made.get(key, {}).get(action, 0.0) + float(p)
        return _lookup(f"{table.where} of the policy", made, actions)
    if len(set(keys)) < len(keys):
        raise InputError(f"{table.where} of the policy has several rows for one state")
    rows = np.stack([np.asarray(column[name], dtype=np.float64) for name in wide], axis=1)
    numbers = {key: number for number, key in enumerate(keys)}
    return Lookup(
        f"{table.where} of the policy", numbers, _checked(f"{table.where} of the policy", rows)
    )


def _array(answer: Any) -> NDArray[Any]:
    """An array of an answer, also of a tensor that has a gradient."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu()
    try:
        found = np.asarray(answer)
    except ValueError:
        return objects(list(answer))
    return found


def _plain(value: Any) -> Any:
    """A NumPy scalar or an array of one entry as the Python value."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def _name(policy: Any) -> str:
    return str(getattr(policy, "__name__", None) or f"the policy ({type(policy).__name__})")
