"""Walks on a line."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from covshift.errors import InputError
from covshift.theory.examples.problem import Problem
from covshift.theory.mdp import FiniteMDP


def line_chain(
    length: int, slip: float = 0.1, pi_right: float = 0.6, mu_right: float = 0.5
) -> Problem:
    """A continuing walk on `length` states with reflecting ends, sparse; reward 1 at the right end.

    Action 0 goes left and 1 right, and with probability `slip` the other way. A policy takes 1 with
    the given probability everywhere.
    """
    if length < 2:
        raise InputError(f"a chain needs at least 2 states, but length is {length}")
    states = np.arange(length)
    ends = np.stack([np.maximum(states - 1, 0), np.minimum(states + 1, length - 1)], axis=1)
    rows = np.repeat(np.arange(2 * length), 2)
    columns = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1)
    data = np.tile([1.0 - slip, slip], 2 * length)
    p = sp.csr_array((data, (rows, columns)), shape=(2 * length, length))
    p.eliminate_zeros()
    r = np.zeros((length, 2))
    r[-1] = 1.0
    pi, mu = ([[1.0 - right, right]] for right in (pi_right, mu_right))
    return Problem(FiniteMDP(p, r), np.repeat(pi, length, 0), np.repeat(mu, length, 0), 0.99)


def random_walk(
    num_inner: int = 5,
    pi_right: float = 0.7,
    mu_right: float = 0.5,
    *,
    revisits_start: bool = False,
) -> Problem:
    """An episodic walk that starts in the middle and ends off either side, right with reward 1.

    By default a state of its own leads to the middle, so that the single start is never revisited
    (the paper's Assumption 1). With `revisits_start` the middle itself is the start, and walks return
    to it.
    """
    if num_inner < 1 or num_inner % 2 == 0:
        raise InputError(f"a walk has a middle only for an odd num_inner, but it is {num_inner}")
    size = num_inner if revisits_start else num_inner + 1
    p = np.zeros((size, 2, size))
    r = np.zeros((size, 2))
    for state in range(num_inner):
        if state > 0:
            p[state, 0, state - 1] = 1.0
        if state < num_inner - 1:
            p[state, 1, state + 1] = 1.0
    r[num_inner - 1, 1] = 1.0
    middle = num_inner // 2
    if not revisits_start:
        p[num_inner, :, middle] = 1.0
    d_0 = np.zeros(size)
    d_0[middle if revisits_start else num_inner] = 1.0
    pi, mu = ([[1.0 - right, right]] for right in (pi_right, mu_right))
    return Problem(FiniteMDP(p, r, d_0), np.repeat(pi, size, 0), np.repeat(mu, size, 0), 1.0)
