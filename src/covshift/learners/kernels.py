"""Compiled loops over blocks of transitions, for one seed or many; `blocks` has the functions to call.

Numba takes time to import and to compile, so this module is imported when the first block is learned. The arithmetic
is that of `covshift.rules`, written out for single numbers; `tests/learners/test_blocks.py` compares the two.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

_HIGHEST = float(np.log(np.finfo(np.float64).max))
"""The largest score that does not overflow an exponential."""


@numba.njit(cache=True)
def count_visits(visits: Any, states: Any) -> NDArray[np.int64]:
    """How often each state of a block was visited before; adds the block to `visits`, seeds × states."""
    before = np.empty(states.shape, np.int64)
    for t in range(states.shape[0]):
        for seed in range(states.shape[1]):
            before[t, seed] = visits[seed, states[t, seed]]
            visits[seed, states[t, seed]] += 1
    return before


@numba.njit(cache=True)
def bootstrap(
    w: Any,
    phi: Any,
    source: Any,
    gain: Any,
    offset: Any,
    moved: Any,
    window: Any,
    discount: float,
    step_sizes: Any,
    floor: Any,
    mean_weight: Any,
    count: int,
) -> None:
    """Moves predictions at `moved` states towards discount · gain · (prediction at `source`) + offset.

    Where gain is 0 the prediction at the source does not matter, even if it is not finite. `w` and `mean_weight` are
    changed in place; the arrays over transitions are steps × seeds. Other arguments are those of `blocks.learn_ratio`.
    """
    first = len(moved) - len(window)
    for k in range(len(window)):
        t = first + k
        for seed in range(moved.shape[1]):
            target = _predict(w, phi, seed, source[window[k], seed])
            for j in range(window[k], t + 1):
                if gain[j, seed] == 0.0:
                    target = offset[j, seed]
                else:
                    target = discount * (gain[j, seed] * target) + offset[j, seed]
            state = moved[t, seed]
            prediction = _predict(w, phi, seed, state)
            error = target - prediction
            if floor is not None:
                weight = 1.0 / max(prediction, floor)
                mean_weight[seed] += (weight - mean_weight[seed]) / (count + k + 1)
                error *= weight / mean_weight[seed]
            if phi is None:
                w[seed, state] += step_sizes[k, seed] * error
            else:
                for feature in range(phi.shape[1]):
                    w[seed, feature] += step_sizes[k, seed] * (error * phi[state, feature])


@numba.njit(cache=True)
def match(
    w: Any,
    phi: Any,
    source: Any,
    rho: Any,
    moved: Any,
    is_initial: Any,
    ratio_discount: float,
    step_sizes: Any,
    is_safe: bool,
) -> Any:
    """Moves what arrives, g(φᵀw), at `moved` states towards ρ · (ratio at `source`), or 1 at initial states.

    Arguments are those of `blocks.match_ratio`, which says what is returned.
    """
    highest = -np.inf
    for t in range(len(moved)):
        for seed in range(moved.shape[1]):
            z_tm1 = _predict(w, phi, seed, source[t, seed])
            z_t = _predict(w, phi, seed, moved[t, seed])
            highest = max(highest, z_tm1, z_t)
            if not is_safe and highest > _HIGHEST:
                return highest
            c_tm1 = ratio_discount * _link(z_tm1, is_safe) + (1.0 - ratio_discount)
            target = 1.0 if is_initial[t, seed] else rho[t, seed] * c_tm1
            size = step_sizes[t, seed] * (target - _link(z_t, is_safe))
            for feature in range(phi.shape[1]):
                w[seed, feature] += size * phi[moved[t, seed], feature]
    return highest


@numba.njit(cache=True)
def _link(z: float, is_safe: bool) -> Any:
    return 1.0 + z if is_safe and z > 0.0 else np.exp(z)


@numba.njit(cache=True)
def _predict(w: Any, phi: Any, seed: int, state: int) -> Any:
    if phi is None:
        return w[seed, state]
    total = 0.0
    for feature in range(phi.shape[1]):
        total += phi[state, feature] * w[seed, feature]
    return total
