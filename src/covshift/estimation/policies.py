"""Policies as users give them: a function, a table, or a name."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from covshift.data.policies import Function, Policy, Table, parse_policy
from covshift.errors import InputError

PolicyLike: TypeAlias = Policy | Callable[[NDArray[Any]], Any] | NDArray[np.float64] | str

_TOLERANCE = 1e-5


def as_policy(policy: PolicyLike, num_actions: int) -> Policy:
    """The policy that a user means.

    Args:
        policy: a function from a batch of states to batch × actions probabilities; a table of states ×
            actions; a name `uniform | file:P.npy | run:DIR,epsilon=E | module:function`; or an object with a
            method `probabilities`.
        num_actions: number of actions of the environment.

    Raises:
        InputError: it is none of these, or not a policy over that many actions.
    """
    if isinstance(policy, str):
        return parse_policy(policy, num_actions)
    if hasattr(policy, "probabilities"):
        return cast(Policy, policy)
    if callable(policy):
        return Function(getattr(policy, "__name__", "the policy"), policy, num_actions)
    table = np.asarray(policy, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] != num_actions:
        raise InputError(
            f"the policy's table has shape {table.shape}, but (states, {num_actions}) is needed"
        )
    sums = table.sum(axis=1)
    bad = ~(np.isfinite(sums) & (table >= 0).all(axis=1) & (np.abs(sums - 1) < _TOLERANCE))
    if bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"{int(bad.sum())} of {len(bad)} rows of the policy's table are not probability vectors, the "
            f"first is row {row}: {table[row]}"
        )
    table = table / sums[:, None]
    return Table(table, hashlib.sha256(table.tobytes()).hexdigest())
