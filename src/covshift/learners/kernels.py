"""Compiled loops over blocks of transitions, for one seed or many; `blocks` has the functions to call.

Numba takes time to import and to compile, so this module is imported when the first block is learned. The arithmetic
is that of `covshift.rules`, written out for single numbers; `tests/learners/test_blocks.py` compares the two.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray


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
def _predict(w: Any, phi: Any, seed: int, state: int) -> Any:
    if phi is None:
        return w[seed, state]
    total = 0.0
    for feature in range(phi.shape[1]):
        total += phi[state, feature] * w[seed, feature]
    return total
