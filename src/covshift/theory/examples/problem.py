"""An off-policy problem: an MDP, the two policies, features and the value's discount."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from covshift.theory.chain import MarkovChain
from covshift.theory.mdp import FiniteMDP
from covshift.theory.operators import BellmanOperator, CopOperator
from covshift.theory.ratios import c_star, rho
from covshift.validation import Dense, Vector


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """Evaluate `pi` from data that `mu` generates.

    Derived quantities are computed when they are first used, and kept.

    Args:
        mdp: the MDP.
        pi: target policy, states × actions.
        mu: behavior policy, states × actions.
        discount: γ of the value function.
        features: states × features, as `phi` returns them; None for one-hot features.
    """

    mdp: FiniteMDP
    pi: Dense
    mu: Dense
    discount: float = 0.99
    features: Dense | None = None

    @property
    def phi(self) -> Dense:
        """The features, one row per state."""
        return np.eye(self.mdp.num_states) if self.features is None else self.features

    @cached_property
    def chain_pi(self) -> MarkovChain:
        """The chain under the target policy."""
        return self.mdp.chain(self.pi)

    @cached_property
    def chain_mu(self) -> MarkovChain:
        """The chain under the behavior policy."""
        return self.mdp.chain(self.mu)

    @cached_property
    def d_pi(self) -> Vector:
        """Occupancy of the target policy; visits if episodic."""
        return self.chain_pi.occupancy()

    @cached_property
    def d_mu(self) -> Vector:
        """Occupancy of the behavior policy; visits if episodic."""
        return self.chain_mu.occupancy()

    @cached_property
    def rho(self) -> Dense:
        """π(a|s)/μ(a|s) as a table."""
        return rho(self.pi, self.mu)

    @property
    def cop(self) -> CopOperator:
        """Y."""
        return CopOperator(self.chain_pi, self.d_mu)

    @property
    def bellman(self) -> BellmanOperator:
        """𝒯_π."""
        return BellmanOperator(self.chain_pi, self.mdp.r_pi(self.pi), self.discount)

    def c_star(self, ratio_discount: float = 1.0) -> Vector:
        """The exact ratio."""
        return c_star(self.chain_pi, self.d_mu, ratio_discount)

    def restart(self) -> Problem:
        """The continuing problem in which each episode's end leads to the next one's start."""
        return replace(self, mdp=self.mdp.restart())
