"""Lemma 3, Theorem 4, and the errata on them."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.claims.cases import RANDOM, SKEWED, Case, continuing, skewed
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.experiments.theory.claims.convergence import TWO_CYCLE, steps_to_converge
from covshift.theory import (
    CopOperator,
    MarkovChain,
    ProjectedOperator,
    as_dense,
    concentration,
    concentration_limit,
    printed_concentration_bound,
    safe_ratio_discount,
    spectral_radius,
)

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
TO_FIRST = "every state leads to the first, random d_μ"


def _concentration(case: Case) -> float:
    """K_n."""
    return concentration(case.problem.chain_pi, case.problem.d_mu, case.num_steps)


def _chain_to_first(size: int) -> MarkovChain:
    return MarkovChain(np.eye(size)[np.zeros(size, dtype=int)])


def _sum_difference(case: Case, *, printed: bool) -> float:
    """How far Σ_s d(s)/d(s') P(s'|s) is from 1 for μ = π, or as printed from d(s')."""
    chain, d = case.problem.chain_pi, case.problem.d_pi
    sums = as_dense(CopOperator(chain, d).as_matrix()).sum(axis=1)
    return float(np.abs(sums - (d if printed else 1.0)).max())


def _distance_from_threshold(case: Case, *, printed: bool) -> float:
    """How far the norm of Y_γ̂ⁿ is from 1 at the threshold, where Lemma 3 is tight.

    That is where every state leads to the first: ‖Yⁿ‖² = K = 1/d_μ(first).
    """
    d_mu, n = case.weighting(), 3
    chain = _chain_to_first(len(d_mu))
    k = concentration(chain, d_mu, n)
    gamma = k ** (-n / 2.0) if printed else safe_ratio_discount(k, n)
    return abs(CopOperator(chain, d_mu).discounted(gamma).power(n).induced_norm(d_mu) - 1.0)


@theorem("lemma-3", RANDOM + ", n from 1 to 5", continuing)
def _lemma_3(case: Case) -> float:
    """‖Yⁿ‖²_{d_μ} ≤ K_n and 1 ≤ K_n ≤ 1/min d_μ."""
    problem, k = case.problem, _concentration(case)
    norm = problem.cop.power(case.num_steps).induced_norm(problem.d_mu)
    return max(norm**2 - k, 1.0 - k, k - 1.0 / float(problem.d_mu.min())) / k


@theorem("lemma-3-printed-bound", RANDOM, continuing, broken_by="E6-transient")
def _printed_bound(case: Case) -> float:
    """K_n ≤ ‖d_μ/d_π‖‖d_π/d_μ‖ where π has no transient states."""
    problem = case.problem
    return _concentration(case) / printed_concentration_bound(problem.d_pi, problem.d_mu) - 1.0


@refuted("E6-transient", TO_FIRST, continuing, tolerance=0.5, cases=20)
def _transient(case: Case) -> float:
    """Lemma 3's printed bound on K_n is finite. It is infinite where π has transient states, although K_n is finite."""
    d_mu = case.weighting()
    chain = _chain_to_first(len(d_mu))
    printed = printed_concentration_bound(chain.stationary(), d_mu)
    return float(np.isinf(printed) and np.isfinite(concentration(chain, d_mu)))


@theorem("lemma-3-limit", RANDOM, continuing, tolerance=1e-6, broken_by="lemma-3-periodic")
def _limit(case: Case) -> float:
    """K_n → max d_π/d_μ on an aperiodic chain."""
    problem = case.problem
    num_steps = steps_to_converge(problem.chain_pi.mixing_rate())
    limit = concentration_limit(problem.chain_pi, problem.d_mu)
    return abs(concentration(problem.chain_pi, problem.d_mu, num_steps) - limit) / limit


@refuted("lemma-3-periodic", "a 2-cycle, random d_μ", continuing, cases=50)
def _periodic_limit(case: Case) -> float:
    """K_n → max d_π/d_μ on a periodic chain."""
    d_mu = case.rng.dirichlet(np.ones(2))
    return abs(concentration(TWO_CYCLE, d_mu, 1001) - concentration_limit(TWO_CYCLE, d_mu))


@theorem("E7-on-policy", RANDOM, continuing)
def _on_policy_sum(case: Case) -> float:
    """For μ = π the sum in K is 1 for every s'."""
    return _sum_difference(case, printed=False)


@refuted("E7-printed", RANDOM, continuing)
def _printed_on_policy_sum(case: Case) -> float:
    """for μ = π the sum in K is d_π(s')."""
    return _sum_difference(case, printed=True)


@theorem(
    "theorem-4",
    RANDOM + ", n from 1 to 5, random features",
    continuing,
    broken_by="theorem-4-needs-small-discount",
)
def _theorem_4(case: Case) -> float:
    """For γ̂ < K_n^(-1/(2n)), Y_γ̂ⁿ and Π_{d_μ}Y_γ̂ⁿ contract in the d_μ norm."""
    problem, k = case.problem, _concentration(case)
    gamma = 0.999 * safe_ratio_discount(k, case.num_steps)
    n_step = problem.cop.discounted(gamma).power(case.num_steps)
    projected = ProjectedOperator(n_step, case.features(), problem.d_mu)
    bound = gamma**case.num_steps * np.sqrt(k)
    expansion = n_step.induced_norm(problem.d_mu) - float(bound)
    return max(expansion, projected.induced_norm(problem.d_mu) - 1.0)


@refuted(
    "theorem-4-needs-small-discount", SKEWED + ", 2 normal features, γ̂ = 0.99", skewed, cases=1000
)
def _expands(case: Case) -> float:
    """Π_{d_μ}Y_γ̂ is stable, with a spectral radius of at most 1, for every γ̂ < 1."""
    problem = case.problem
    phi = case.rng.standard_normal((problem.mdp.num_states, 2))
    projected = ProjectedOperator(problem.cop.discounted(0.99), phi, problem.d_mu)
    return spectral_radius(projected.on_weights()) - 1.0


@theorem("E8-sharp", TO_FIRST + ", n = 3", continuing, broken_by="E8-exponent")
def _sharp_threshold(case: Case) -> float:
    """K_n^(-1/(2n)) is sharp: where Lemma 3 is tight, the norm of Y_γ̂ⁿ is 1 at this γ̂."""
    return _distance_from_threshold(case, printed=False)


@refuted("E8-exponent", TO_FIRST + ", n = 3", continuing)
def _printed_threshold(case: Case) -> float:
    """Theorem 4's threshold is K_n^(-n/2), as the printed K^(-1/2n) reads. At this γ̂ the norm is far below 1."""
    return _distance_from_threshold(case, printed=True)
