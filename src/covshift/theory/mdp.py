"""Finite Markov decision processes, continuing and episodic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp

from covshift.errors import InputError
from covshift.theory.chain import MarkovChain, lead_ends_to
from covshift.validation import (
    Dense,
    Matrix,
    Vector,
    as_distribution,
    as_policy,
    as_table,
    check_discount,
    check_rows,
)


@final
@dataclass(frozen=True, eq=False)
class FiniteMDP:
    """A finite MDP with kernel P(s'|s, a) and expected rewards R(s, a).

    With a start distribution `d_0` it is episodic: P(·|s, a) may sum to less than 1, and the missing
    probability is that of the episode ending.

    Args:
        p: states × actions × states as an array, or a sparse matrix of (states · actions) × states
            whose row `s * num_actions + a` is P(·|s, a).
        r: states × actions, the expected reward.
        d_0: start distribution of an episodic MDP; None for a continuing one.

    Example:
        >>> mdp = FiniteMDP(p=[[[0.0, 1.0], [1.0, 0.0]]] * 2, r=[[0.0, 1.0]] * 2)
        >>> mdp.chain([[0.5, 0.5]] * 2).stationary()
        array([0.5, 0.5])
    """

    p: Matrix
    r: Dense
    d_0: Vector | None = None

    def __post_init__(self) -> None:
        rewards = as_table("r", self.r, (-1, -1))
        num_states, num_actions = rewards.shape
        kernel: Matrix
        rows: Matrix
        if sp.issparse(self.p):
            kernel = rows = sp.csr_array(self.p)
            if rows.shape != (num_states * num_actions, num_states):
                raise InputError(
                    f"sparse p has shape {rows.shape}, but with r of shape {rewards.shape} "
                    f"({num_states * num_actions}, {num_states}) is needed"
                )
        else:
            kernel = as_table("p", self.p, (num_states, num_actions, num_states))
            rows = kernel.reshape(-1, num_states)
        check_rows("p (row = state · actions + action)", rows, substochastic=self.d_0 is not None)
        object.__setattr__(self, "p", kernel)
        object.__setattr__(self, "r", rewards)
        if self.d_0 is not None:
            object.__setattr__(self, "d_0", as_distribution("d_0", self.d_0, num_states))

    @property
    def num_states(self) -> int:
        """The number of states."""
        return int(self.r.shape[0])

    @property
    def num_actions(self) -> int:
        """The number of actions."""
        return int(self.r.shape[1])

    @property
    def is_episodic(self) -> bool:
        """Whether episodes start from `d_0` and end."""
        return self.d_0 is not None

    def chain(self, policy: Dense) -> MarkovChain:
        """P_π, the state-to-state chain under a policy: Σ_a π(a|s) P(s'|s, a)."""
        pi = as_policy("policy", policy, self.num_states, self.num_actions)
        if sp.issparse(self.p):
            size = self.num_states * self.num_actions
            pick = sp.csr_array(
                (pi.ravel(), np.arange(size), np.arange(0, size + 1, self.num_actions)),
                shape=(self.num_states, size),
            )
            p_pi = sp.csr_array(pick @ self.p)
            p_pi.eliminate_zeros()
            return MarkovChain(p_pi, self.d_0)
        return MarkovChain(np.einsum("sa,sat->st", pi, self.p), self.d_0)

    def r_pi(self, policy: Dense) -> Vector:
        """r_π, the expected reward of each state under a policy."""
        pi = as_policy("policy", policy, self.num_states, self.num_actions)
        return np.asarray((pi * self.r).sum(axis=1))

    def value(self, policy: Dense, discount: float) -> Vector:
        """V^π = (I - γP_π)⁻¹ r_π."""
        check_discount("discount", discount, below_one=not self.is_episodic)
        return self.chain(policy).resolvent(discount).solve(self.r_pi(policy))

    def restart(self) -> FiniteMDP:
        """The continuing MDP in which the end of an episode leads to the next one's start."""
        if self.d_0 is None:
            return self
        if sp.issparse(self.p):
            return FiniteMDP(lead_ends_to(self.p, self.d_0), self.r)
        rows = lead_ends_to(self.p.reshape(-1, self.num_states), self.d_0)
        return FiniteMDP(rows.reshape(self.p.shape), self.r)

    def dense_kernel(self) -> Dense:
        """P as an array of states × actions × states."""
        rows = self.p.toarray() if sp.issparse(self.p) else self.p
        return np.asarray(rows).reshape(self.num_states, self.num_actions, self.num_states)


def uniform_policy(mdp: FiniteMDP) -> Dense:
    """The policy that takes each action with the same probability."""
    return np.full((mdp.num_states, mdp.num_actions), 1.0 / mdp.num_actions)
