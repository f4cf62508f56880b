"""Samples from a finite MDP: many independent streams of experience at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from covshift.theory.mdp import FiniteMDP
from covshift.validation import Vector, as_policy

_BLOCK = 256


class Transition(NamedTuple):
    """One step of every stream; each field is an array over streams.

    Attributes:
        s_tm1: the state before.
        a_tm1: the action taken there.
        r_t: the expected reward R(s_tm1, a_tm1).
        s_t: the state after; where the episode ended, the next one's first state.
        is_initial_t: whether s_t starts an episode, that is, whether a_tm1 ended one.
    """

    s_tm1: NDArray[np.int64]
    a_tm1: NDArray[np.int64]
    r_t: Vector
    s_t: NDArray[np.int64]
    is_initial_t: NDArray[np.bool_]

    def discount_t(self, discount: float) -> Vector:
        """The value's discount for each stream, 0 where the episode ended."""
        return np.where(self.is_initial_t, 0.0, discount)


def simulate(
    mdp: FiniteMDP, mu: ArrayLike, num_steps: int, num_streams: int, rng: np.random.Generator
) -> Iterator[Transition]:
    """`num_steps` transitions of `num_streams` independent streams under the behavior policy.

    A continuing stream starts from the stationary distribution, an episodic one from `d_0`.
    """
    policy = as_policy("mu", mu, mdp.num_states, mdp.num_actions)
    start = mdp.chain(policy).stationary() if mdp.d_0 is None else mdp.d_0
    starts = np.cumsum(start)
    actions = np.cumsum(policy, axis=1)
    kernel = sp.csr_array(
        mdp.p if sp.issparse(mdp.p) else mdp.p.reshape(-1, mdp.num_states), copy=True
    )
    rows = np.asarray(kernel.sum(axis=1)).ravel()
    before = np.concatenate([[0.0], np.cumsum(rows)])
    within = np.cumsum(kernel.data)

    s_tm1 = _draw(starts, rng.random(num_streams))
    for step in range(num_steps):
        if step % _BLOCK == 0:
            block = rng.random((min(_BLOCK, num_steps - step), 3, num_streams))
        u_action, u_state, u_start = block[step % _BLOCK]
        a_tm1 = (actions[s_tm1] <= u_action[:, None]).sum(axis=1)
        a_tm1 = np.minimum(a_tm1, mdp.num_actions - 1)
        row = s_tm1 * mdp.num_actions + a_tm1
        place = np.searchsorted(within, before[row] + u_state, side="right")
        ended = (u_state >= rows[row]) & mdp.is_episodic
        s_t = _draw(starts, u_start)
        within_row = np.clip(place, kernel.indptr[row], kernel.indptr[row + 1] - 1)[~ended]
        s_t[~ended] = kernel.indices[within_row]
        yield Transition(s_tm1, a_tm1, mdp.r[s_tm1, a_tm1], s_t, ended)
        s_tm1 = s_t


def _draw(cumulative: Vector, u: Vector) -> NDArray[np.int64]:
    """An index for each u by inversion; an entry of probability 0 is never drawn."""
    place = np.searchsorted(cumulative, u * cumulative[-1], side="right")
    return np.asarray(np.minimum(place, len(cumulative) - 1))
