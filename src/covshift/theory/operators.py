"""The operators of the paper.

Each is affine, x ↦ Ax + b, and has `apply`, its matrix A, its offset b and its fixed point. The exception is the
normalized COP operator, which divides and so is not affine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from covshift.errors import InputError
from covshift.theory.chain import MarkovChain, as_dense
from covshift.theory.norms import induced_norm, spectral_radius
from covshift.theory.projections import project_span, span_projection
from covshift.theory.ratios import c_star, d_pi_hat
from covshift.validation import (
    Dense,
    Matrix,
    Vector,
    as_distribution,
    as_occupancy,
    as_table,
    as_vector,
    as_weights,
    check_count,
    check_discount,
)


class AffineOperator(ABC):
    """x ↦ Ax + b on vectors over states."""

    @abstractmethod
    def apply(self, x: Vector) -> Vector:
        """Ax + b."""

    @abstractmethod
    def as_matrix(self) -> Matrix:
        """A, the linear part."""

    @abstractmethod
    def fixed_point(self) -> Vector:
        """The x with x = Ax + b; if all its multiples are fixed points too, the one of mean 1."""

    def offset(self) -> Vector:
        """b, the image of 0."""
        return self.apply(np.zeros(self.as_matrix().shape[0]))

    def power(self, num_steps: int) -> PowerOperator:
        """The operator applied `num_steps` times."""
        return PowerOperator(self, num_steps)

    def induced_norm(self, d: ArrayLike) -> float:
        """‖A‖_d, the factor by which differences grow at most in the d-weighted norm."""
        return induced_norm(self.as_matrix(), d)

    def spectral_radius(self) -> float:
        """The radius of A: iterates converge from everywhere exactly if it is below 1."""
        return spectral_radius(self.as_matrix())


@final
@dataclass(frozen=True, eq=False)
class BellmanOperator(AffineOperator):
    """𝒯_π V = r_π + γP_π V."""

    chain_pi: MarkovChain
    r_pi: Vector
    discount: float

    def __post_init__(self) -> None:
        below_one = not self.chain_pi.is_episodic
        check_discount("discount", self.discount, below_one=below_one)
        object.__setattr__(self, "r_pi", as_vector("r_pi", self.r_pi, self.chain_pi.num_states))

    def apply(self, x: Vector) -> Vector:
        """r_π + γP_π x."""
        return self.r_pi + self.discount * (self.chain_pi.p @ x)

    def as_matrix(self) -> Matrix:
        """γP_π."""
        return self.discount * self.chain_pi.p

    def fixed_point(self) -> Vector:
        """V^π."""
        return self.chain_pi.resolvent(self.discount).solve(self.r_pi)


@final
@dataclass(frozen=True, eq=False)
class CopOperator(AffineOperator):
    """Y_γ̂ c = γ̂ D⁻¹P_πᵀD c + (1 - γ̂) e with D = diag(d_μ), eq. (6); at γ̂ = 1 it is Y, eq. (5).

    On an episodic chain γ̂ (D⁻¹P_πᵀD c + D⁻¹d₀) + (1 - γ̂) e, where d_μ counts visits; eq. (10) and (11) in
    the form that holds for any start distribution.
    """

    chain_pi: MarkovChain
    d_mu: Vector
    ratio_discount: float = 1.0

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        size, episodic = self.chain_pi.num_states, self.chain_pi.is_episodic
        d_mu = as_occupancy("d_mu", self.d_mu, size, episodic=episodic)
        object.__setattr__(self, "d_mu", as_weights("d_mu", d_mu, size))

    def discounted(self, ratio_discount: float) -> CopOperator:
        """Y_γ̂ over the same chain and the same data."""
        return CopOperator(self.chain_pi, self.d_mu, ratio_discount)

    def apply(self, x: Vector) -> Vector:
        """γ̂ times what arrives, plus 1 - γ̂."""
        inflow = self.chain_pi.push(self.d_mu * x)
        if self.chain_pi.d_0 is not None:
            inflow = inflow + self.chain_pi.d_0
        return self.ratio_discount * inflow / self.d_mu + (1.0 - self.ratio_discount)

    def as_matrix(self) -> Matrix:
        """γ̂ D⁻¹P_πᵀD."""
        p = self.chain_pi.p
        if sp.issparse(p):
            scaled = sp.diags_array(1.0 / self.d_mu) @ p.T @ sp.diags_array(self.d_mu)
            return sp.csr_array(self.ratio_discount * scaled)
        return self.ratio_discount * p.T * self.d_mu[None, :] / self.d_mu[:, None]

    def fixed_point(self) -> Vector:
        """d̂_π/d_μ (Lemma 2); at γ̂ = 1 d_π/d_μ, whose multiples are fixed points too if the chain is continuing."""
        return c_star(self.chain_pi, self.d_mu, self.ratio_discount)


@final
@dataclass(frozen=True, eq=False)
class NormalizedCopOperator:
    """Ȳ c = Yc / Σ_s d_μ(s) (Yc)(s); Corollary 1, normalized by the mean under d_μ (erratum E1)."""

    chain_pi: MarkovChain
    d_mu: Vector

    def __post_init__(self) -> None:
        if self.chain_pi.is_episodic:
            raise InputError("the normalized operator is for continuing chains: use `restart()`")
        weights = as_weights("d_mu", self.d_mu, self.chain_pi.num_states)
        object.__setattr__(self, "d_mu", as_distribution("d_mu", weights, len(weights)))

    def apply(self, x: Vector) -> Vector:
        """Yx over its mean under d_μ."""
        image = CopOperator(self.chain_pi, self.d_mu).apply(x)
        mean = float(self.d_mu @ image)
        if mean == 0.0:
            raise InputError("the ratio has mean 0 under d_mu, so it cannot be normalized to 1")
        return image / mean

    def fixed_point(self) -> Vector:
        """d_π/d_μ."""
        return c_star(self.chain_pi, self.d_mu)


@final
@dataclass(frozen=True, eq=False)
class ResetTransition(AffineOperator):
    """P̂_π = γ̂P_π + (1 - γ̂) e d_μᵀ acting on distributions: with probability 1 - γ̂ the state is reset to a draw of d_μ."""

    chain_pi: MarkovChain
    d_mu: Vector
    ratio_discount: float

    def __post_init__(self) -> None:
        check_discount("ratio_discount", self.ratio_discount)
        if self.chain_pi.is_episodic:
            raise InputError("the reset function is for continuing chains: use `restart()`")
        object.__setattr__(
            self, "d_mu", as_distribution("d_mu", self.d_mu, self.chain_pi.num_states)
        )

    def apply(self, x: Vector) -> Vector:
        """P̂_πᵀ x, the mass one step later."""
        reset = (1.0 - self.ratio_discount) * x.sum() * self.d_mu
        return np.asarray(self.ratio_discount * self.chain_pi.push(x) + reset)

    def as_matrix(self) -> Dense:
        """P̂_πᵀ as a dense array: column s is where state s goes."""
        reset = (1.0 - self.ratio_discount) * np.outer(self.d_mu, np.ones(len(self.d_mu)))
        return self.ratio_discount * as_dense(self.chain_pi.p).T + reset

    def fixed_point(self) -> Vector:
        """d̂_π."""
        return d_pi_hat(self.chain_pi, self.d_mu, self.ratio_discount)


@final
@dataclass(frozen=True, eq=False)
class ProjectedOperator(AffineOperator):
    """Π_d F: an operator followed by the projection onto span Φ in the d-weighted norm.

    With a Bellman operator it is the projected Bellman operator of eq. (3), with a COP operator
    the expected behavior of the linear semi-gradient rule.
    """

    operator: AffineOperator
    phi: Dense
    d: Vector

    def __post_init__(self) -> None:
        object.__setattr__(self, "phi", as_table("phi", self.phi, (-1, -1)))
        object.__setattr__(self, "d", as_occupancy("d", self.d, len(self.phi), episodic=True))

    def apply(self, x: Vector) -> Vector:
        """Π_d F(x)."""
        return project_span(self.operator.apply(x), self.phi, self.d)

    def as_matrix(self) -> Dense:
        """Π_d A."""
        return span_projection(self.phi, self.d) @ as_dense(self.operator.as_matrix())

    def on_weights(self) -> Dense:
        """The k × k matrix M with Π_d AΦw = ΦMw; it has the nonzero eigenvalues of Π_d A."""
        root = np.sqrt(self.d)
        image = self.operator.as_matrix() @ self.phi
        return np.asarray(np.linalg.lstsq(root[:, None] * self.phi, root[:, None] * image)[0])

    def fixed_point_weights(self) -> Vector:
        """The w with Φw = Π_d F(Φw): ΦᵀD(Φ - AΦ) w = ΦᵀDb; the smallest one if there are several.

        Raises:
            InputError: no weights fit, as at a pole of the projected equation.
        """
        weighted = self.phi.T * self.d
        system = weighted @ (self.phi - self.operator.as_matrix() @ self.phi)
        right = weighted @ self.operator.offset()
        w = np.linalg.lstsq(system, right)[0]
        if np.abs(system @ w - right).max() > 1e-9 * max(1e-300, np.abs(right).max()):
            raise InputError("the projected equation has no solution for these features and this d")
        return np.asarray(w)

    def fixed_point(self) -> Vector:
        """Φw with the weights that solve the projected equation."""
        return np.asarray(self.phi @ self.fixed_point_weights())


@final
@dataclass(frozen=True, eq=False)
class PowerOperator(AffineOperator):
    """Fⁿ: an operator applied n times, which for Y_γ̂ is the n-step operator of Theorem 4."""

    operator: AffineOperator
    num_steps: int

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps)

    def apply(self, x: Vector) -> Vector:
        """F(F(… x))."""
        for _ in range(self.num_steps):
            x = self.operator.apply(x)
        return x

    def as_matrix(self) -> Dense:
        """Aⁿ."""
        return np.linalg.matrix_power(as_dense(self.operator.as_matrix()), self.num_steps)

    def fixed_point(self) -> Vector:
        """That of the operator itself."""
        return self.operator.fixed_point()
