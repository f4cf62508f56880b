"""Retrace on finite MDPs: its operator on state-action values, and the laws under which it contracts."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np

from covshift.errors import InputError
from covshift.theory.mdp import FiniteMDP
from covshift.theory.operators import AffineOperator
from covshift.theory.ratios import rho
from covshift.validation import Dense, Vector, check_discount


@final
@dataclass(frozen=True, eq=False)
class RetraceOperator(AffineOperator):
    """ℛQ = Q + (I - γP_c)⁻¹(𝒯_πQ - Q) on vectors over (s, a), the action running fastest.

    P_c(s'a'|sa) = P(s'|s, a) μ(a'|s') c(s', a') with the traces c = λ min(1, ρ), so that μc = λ min(π, μ). At λ = 0
    it is 𝒯_π on state-action values; for μ = π it is that of TD(λ).

    Args:
        mdp: the MDP.
        pi: target policy.
        mu: behavior policy.
        discount: γ.
        decay: λ.

    Reference: Munos et al. (2016), eq. (3).
    """

    mdp: FiniteMDP
    pi: Dense
    mu: Dense
    discount: float
    decay: float = 1.0

    def __post_init__(self) -> None:
        check_discount("discount", self.discount, below_one=True)
        if not 0.0 <= self.decay <= 1.0:
            raise InputError(f"decay must lie in [0, 1], but it is {self.decay}")

    @property
    def kept(self) -> Dense:
        """μc = λ min(π, μ), states × actions."""
        return np.asarray(self.decay * np.minimum(self.pi, self.mu))

    @property
    def sup_modulus(self) -> float:
        """γ(1 - β)/(1 - γβ), which no row of A sums to more than; β is the least share that a trace passes on."""
        passed = float(self.kept.sum(axis=1).min())
        return self.discount * (1.0 - passed) / (1.0 - self.discount * passed)

    def apply(self, x: Vector) -> Vector:
        """ℛx."""
        return self.as_matrix() @ x + self.offset()

    def as_matrix(self) -> Dense:
        """A = (I - γP_c)⁻¹ γ(P_π - P_c); no entry is negative."""
        return self._matrix

    def offset(self) -> Vector:
        """(I - γP_c)⁻¹ R, the image of 0."""
        size = self.mdp.r.size
        system = np.eye(size) - self.discount * self._steps(self.kept)
        return np.asarray(np.linalg.solve(system, self.mdp.r.ravel()))

    def fixed_point(self) -> Vector:
        """Q^π."""
        size = self.mdp.r.size
        system = np.eye(size) - self.discount * self._steps(self.pi)
        return np.asarray(np.linalg.solve(system, self.mdp.r.ravel()))

    def own_law(self, d: Vector, ratio_discount: float) -> Vector:
        """(1 - γ̂)(I - γ̂Āᵀ)⁻¹ d with Ā = A over `sup_modulus`: where bootstrapping along traces leads from d.

        Under this law ‖A‖ ≤ `sup_modulus` · √((1 - κ)/γ̂) with κ = (1 - γ̂) min d/law, for every γ̂ < 1, as for one step
        (B2).
        """
        check_discount("ratio_discount", ratio_discount, below_one=True)
        steps = self.as_matrix() / self.sup_modulus
        system = np.eye(len(d)) - ratio_discount * steps.T
        return np.asarray((1.0 - ratio_discount) * np.linalg.solve(system, d))

    def near_modulus(self) -> float:
        """A bound on ‖A‖ under d_π(s)π(a|s), good where π is close to μ.

        γ√((1 - β)(1 - λ/ρ_max)/((1 - γβ)(1 - γλ))): rows of A sum to at most `sup_modulus`, and the law grows under Aᵀ
        by at most γ(1 - λ/ρ_max)/(1 - γλ), since it does not grow by more than λ under P_cᵀ.
        """
        largest = float(rho(self.pi, self.mu).max())
        growth = self.discount * (1.0 - self.decay / largest) / (1.0 - self.discount * self.decay)
        return float(np.sqrt(self.sup_modulus * growth))

    @cached_property
    def _matrix(self) -> Dense:
        kept = self._steps(self.kept)
        system = np.eye(len(kept)) - self.discount * kept
        return np.asarray(np.linalg.solve(system, self.discount * (self._steps(self.pi) - kept)))

    def _steps(self, weights: Dense) -> Dense:
        """P(s'|s, a) w(a'|s') as a matrix over (s, a)."""
        rows = self.mdp.dense_kernel().reshape(-1, self.mdp.num_states)
        return np.asarray((rows[:, :, None] * weights[None]).reshape(len(rows), len(rows)))


def worst_feature_radius(a: Dense, d: Vector) -> float:
    """The largest |x'DAx|/(x'Dx): the radius of Π_d A with the single feature x for which it is largest.

    It is at most ‖A‖_d; above 1 there is a feature with which the projected iteration diverges.
    """
    root = np.sqrt(d)
    scaled = a * root[:, None] / root[None, :]
    return float(np.abs(np.linalg.eigvalsh((scaled + scaled.T) / 2.0)).max())
