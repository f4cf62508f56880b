"""Error bounds and contraction moduli: Theorem 1, Lemma 3, Theorem 4, and the results past the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from covshift.errors import InputError
from covshift.theory.chain import MarkovChain
from covshift.theory.norms import induced_norm, weighted_norm
from covshift.theory.operators import BellmanOperator, CopOperator, ProjectedOperator
from covshift.theory.projections import project_span, span_projection
from covshift.theory.ratios import c_star
from covshift.validation import Vector, as_vector, as_weights, check_count, check_discount

MEAN_TOLERANCE = 0.1
"""The share by which an estimated mean ratio may pass its bounds: batches and samples are noisy."""


@final
@dataclass(frozen=True)
class ApproximationError:
    """Theorem 1 for one weighting d, all in the d_π norm.

    Attributes:
        error: ‖V̂_d - V^π‖, the error of the projected fixed point.
        bound: ‖Π_d V^π - V^π‖ / (1 - γ‖Π_d P_π‖), the printed bound; infinite where the condition fails.
        looser_bound: the same over 1 - γ‖Π_d‖, which alone is smallest at d = d_π (E9).
    """

    error: float
    bound: float
    looser_bound: float


def approximation_error(
    bellman: BellmanOperator, phi: ArrayLike, d: ArrayLike, d_pi: ArrayLike
) -> ApproximationError:
    """The three quantities of Theorem 1 for the fixed point of Π_d 𝒯_π."""
    projected = ProjectedOperator(bellman, np.asarray(phi), np.asarray(d))
    value = bellman.fixed_point()
    distance = weighted_norm(project_span(value, phi, d) - value, d_pi)
    projection = span_projection(phi, d)

    def bound(norm: float) -> float:
        margin = 1.0 - bellman.discount * norm
        return distance / margin if margin > 0 else float("inf")

    return ApproximationError(
        error=weighted_norm(projected.fixed_point() - value, d_pi),
        bound=bound(induced_norm(projection @ bellman.chain_pi.p, d_pi)),
        looser_bound=bound(induced_norm(projection, d_pi)),
    )


def mean_ratio_bounds(
    ratio_discount: float, initial_share: float, discount: float = 1.0
) -> tuple[float, float]:
    """The bounds of E_μ[c] that hold for every π when visits are counted (B6).

    Args:
        ratio_discount: γ̂.
        initial_share: p₀, the share of states that start an episode.
        discount: γ of discounted visits.

    Example:
        >>> low, high = mean_ratio_bounds(0.99, 0.1)  # episodes of 10 steps
        >>> round(low, 3), round(high, 1)
        (0.109, 10.9)
    """
    enters = 1.0 - ratio_discount + ratio_discount * initial_share
    leaves = 1.0 - ratio_discount * discount
    return enters, enters / leaves if leaves > 0 else float("inf")


def mean_ratio_is_possible(mean_ratio: float, bounds: tuple[float, float]) -> bool:
    """Whether an estimate of E_μ[c] is within its bounds (B6), or passes them by no more than noise.

    Example:
        >>> bounds = mean_ratio_bounds(0.99, 0.1)  # 0.109 and 10.9
        >>> [mean_ratio_is_possible(mean, bounds) for mean in (0.09, 0.1, 11.9, 12.1)]
        [False, True, True, False]
    """
    low, high = bounds
    return (1.0 - MEAN_TOLERANCE) * low <= mean_ratio <= (1.0 + MEAN_TOLERANCE) * high


def concentration(chain_pi: MarkovChain, d_mu: ArrayLike, num_steps: int = 1) -> float:
    """K_{π,μ,n} = max_s' Σ_s d_μ(s)/d_μ(s') P_πⁿ(s'|s) = ‖Yⁿe‖_∞; ‖Yⁿ‖²_{d_μ} ≤ K (Lemma 3).

    Always 1 ≤ K ≤ 1/min d_μ, and K → max d_π/d_μ as n grows on an aperiodic chain.
    """
    mass = behavior = as_weights("d_mu", d_mu, chain_pi.num_states)
    for _ in range(check_count("num_steps", num_steps)):
        mass = chain_pi.push(mass)
    return float((mass / behavior).max())


def concentration_limit(chain_pi: MarkovChain, d_mu: ArrayLike) -> float:
    """lim K_{π,μ,n} = max d_π/d_μ as n grows, on an aperiodic chain."""
    return float(c_star(chain_pi, d_mu).max())


def printed_concentration_bound(d_pi: ArrayLike, d_mu: ArrayLike) -> float:
    """‖d_μ/d_π‖_∞ ‖d_π/d_μ‖_∞, infinite where π has transient states (E6)."""
    target = np.asarray(d_pi, dtype=np.float64)
    behavior = as_weights("d_mu", d_mu, len(target))
    if (target <= 0).any():
        return float("inf")
    return float((behavior / target).max() * (target / behavior).max())


def safe_ratio_discount(concentration: float, num_steps: int = 1) -> float:
    """K^(-1/(2n)): below it the n-step operator contracts in the d_μ norm (Theorem 4)."""
    check_count("num_steps", num_steps)
    if not concentration >= 1.0 - 1e-9:
        raise InputError(f"a concentration coefficient is at least 1, but it is {concentration}")
    return float(concentration ** (-1.0 / (2.0 * num_steps)))


def reset_margin(c: ArrayLike, ratio_discount: float) -> float:
    """κ = (1 - γ̂)/max c, the margin of both moduli below."""
    check_discount("ratio_discount", ratio_discount, below_one=True)
    return (1.0 - ratio_discount) / float(np.max(np.asarray(c)))


def dual_weighting(c: ArrayLike, d_mu: ArrayLike) -> Vector:
    """ν = d_μ/c, the weighting of states under which γ̂Y contracts (B1)."""
    ratio = np.asarray(c, dtype=np.float64)
    return np.asarray(as_vector("d_mu", d_mu, len(ratio)) / as_weights("c", ratio, len(ratio)))


def dual_modulus(c: ArrayLike, ratio_discount: float) -> float:
    """√(γ̂(1 - κ)) ≥ ‖γ̂Y‖_ν, below 1 for every γ̂ < 1 and every feature matrix (B1)."""
    return float(np.sqrt(ratio_discount * (1.0 - reset_margin(c, ratio_discount))))


def emphatic_modulus(c: ArrayLike, ratio_discount: float, discount: float) -> float:
    """γ√((1 - κ)/γ̂) ≥ ‖γP_π‖_{d̂_π}, the modulus of TD weighted by c·ρ (B2)."""
    if ratio_discount == 0.0:
        raise InputError("ratio_discount must be positive here, but it is 0")
    return float(discount * np.sqrt((1.0 - reset_margin(c, ratio_discount)) / ratio_discount))


def expected_trace(chain_pi: MarkovChain, d_mu: ArrayLike, ratio_discount: float) -> Vector:
    """The expected follow-on trace of a continuing stream with β = γ̂: m = (I - γ̂Y)⁻¹ e.

    c = (1 - γ̂) m (B2).
    """
    check_discount("ratio_discount", ratio_discount, below_one=True)
    if chain_pi.is_episodic:
        raise InputError(
            "the trace is normalized emphasis only on continuing chains: use `restart()`"
        )
    y = CopOperator(chain_pi, np.asarray(d_mu)).as_matrix()
    size = chain_pi.num_states
    return np.asarray(np.linalg.solve(np.eye(size) - ratio_discount * y, np.ones(size)))
