"""Lemma 3, Theorem 4, and the errata on them."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.claim import Claim
from covshift.experiments.theory.claims.cases import RANDOM, SKEWED, Case, continuing, skewed
from covshift.experiments.theory.claims.convergence import steps_to_converge
from covshift.theory import (
    CopOperator,
    MarkovChain,
    ProjectedOperator,
    as_dense,
    concentration,
    concentration_limit,
    printed_concentration_bound,
    safe_ratio_discount,
)


def _concentration(case: Case) -> float:
    return concentration(case.problem.chain_pi, case.problem.d_mu, case.num_steps)


def _lemma_3(case: Case) -> float:
    problem, k = case.problem, _concentration(case)
    norm = problem.cop.power(case.num_steps).induced_norm(problem.d_mu)
    return max(norm**2 - k, 1.0 - k, k - 1.0 / float(problem.d_mu.min())) / k


def _printed_bound(case: Case) -> float:
    """K over the printed bound: at most 1 where π has no transient states."""
    problem = case.problem
    return _concentration(case) / printed_concentration_bound(problem.d_pi, problem.d_mu) - 1.0


def _transient(case: Case) -> float:
    """1 where the printed bound is infinite although K is finite."""
    d_mu = case.weighting()
    leads_to_first = _leads_to_first(len(d_mu))
    printed = printed_concentration_bound(leads_to_first.stationary(), d_mu)
    return float(np.isinf(printed) and np.isfinite(concentration(leads_to_first, d_mu)))


def _limit(case: Case) -> float:
    problem = case.problem
    num_steps = steps_to_converge(problem.chain_pi.mixing_rate())
    limit = concentration_limit(problem.chain_pi, problem.d_mu)
    return abs(concentration(problem.chain_pi, problem.d_mu, num_steps) - limit) / limit


def _on_policy(case: Case, *, printed: bool) -> float:
    """Σ_s d(s)/d(s') P(s'|s) for μ = π against 1, or as printed against d(s')."""
    chain, d = case.problem.chain_pi, case.problem.d_pi
    sums = as_dense(CopOperator(chain, d).as_matrix()).sum(axis=1)
    return float(np.abs(sums - (d if printed else 1.0)).max())


def _theorem_4(case: Case) -> float:
    """Norm of the projected n-step operator just below the safe γ̂, minus 1."""
    problem = case.problem
    gamma = 0.999 * safe_ratio_discount(_concentration(case), case.num_steps)
    n_step = problem.cop.discounted(gamma).power(case.num_steps)
    projected = ProjectedOperator(n_step, case.features(), problem.d_mu)
    bound = gamma**case.num_steps * np.sqrt(_concentration(case))
    expansion = n_step.induced_norm(problem.d_mu) - float(bound)
    return max(expansion, projected.induced_norm(problem.d_mu) - 1.0)


def _expands(case: Case) -> float:
    """Spectral radius of Π_{d_μ}γ̂Y at γ̂ = 0.99, minus 1."""
    problem = case.problem
    phi = case.rng.standard_normal((problem.mdp.num_states, 2))
    projected = ProjectedOperator(problem.cop.discounted(0.99), phi, problem.d_mu)
    return float(np.abs(np.linalg.eigvals(projected.on_weights())).max()) - 1.0


def _threshold(case: Case, *, printed: bool) -> float:
    """How far the norm of Y_γ̂ⁿ is from 1 at the threshold, where Lemma 3 is tight.

    That is where every state leads to the first: ‖Yⁿ‖² = K = 1/d_μ(first).
    """
    d_mu, n = case.weighting(), 3
    chain = _leads_to_first(len(d_mu))
    k = concentration(chain, d_mu, n)
    gamma = k ** (-n / 2.0) if printed else safe_ratio_discount(k, n)
    return abs(CopOperator(chain, d_mu).discounted(gamma).power(n).induced_norm(d_mu) - 1.0)


def _leads_to_first(size: int) -> MarkovChain:
    return MarkovChain(np.eye(size)[np.zeros(size, dtype=int)])


def _periodic_limit(case: Case) -> float:
    """How far K_n stays from max d_π/d_μ on a 2-cycle."""
    chain, d_mu = MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]])), case.rng.dirichlet(np.ones(2))
    return abs(concentration(chain, d_mu, 1001) - concentration_limit(chain, d_mu))


CLAIMS = [
    Claim(
        "lemma-3",
        "‖Yⁿ‖²_{d_μ} ≤ K_n and 1 ≤ K_n ≤ 1/min d_μ (E6).",
        RANDOM + ", n from 1 to 5",
        continuing,
        _lemma_3,
    ),
    Claim(
        "lemma-3-printed-bound",
        "K_n ≤ ‖d_μ/d_π‖‖d_π/d_μ‖ where π has no transient states.",
        RANDOM,
        continuing,
        _printed_bound,
        broken_by="E6-transient",
    ),
    Claim(
        "E6-transient",
        "Refuted: the printed bound is a constant. It is infinite where π has transient states.",
        "every state leads to the first, random d_μ",
        continuing,
        _transient,
        refutes=True,
        tolerance=0.5,
        cases=20,
    ),
    Claim(
        "lemma-3-limit",
        "K_n → max d_π/d_μ on an aperiodic chain.",
        RANDOM,
        continuing,
        _limit,
        tolerance=1e-6,
        broken_by="lemma-3-periodic",
    ),
    Claim(
        "lemma-3-periodic",
        "Refuted: so it does on a periodic chain.",
        "a 2-cycle, random d_μ",
        continuing,
        _periodic_limit,
        refutes=True,
        tolerance=1e-2,
        cases=50,
    ),
    Claim(
        "E7-on-policy",
        "For μ = π the sum in K is 1 for every s'.",
        RANDOM,
        continuing,
        lambda case: _on_policy(case, printed=False),
    ),
    Claim(
        "E7-printed",
        "Refuted: for μ = π the sum is d_π(s').",
        RANDOM,
        continuing,
        lambda case: _on_policy(case, printed=True),
        refutes=True,
        tolerance=1e-2,
    ),
    Claim(
        "theorem-4",
        "For γ̂ < K_n^(-1/(2n)), Y_γ̂ⁿ and Π_{d_μ}Y_γ̂ⁿ contract in the d_μ norm.",
        RANDOM + ", n from 1 to 5, random features",
        continuing,
        _theorem_4,
        broken_by="theorem-4-needs-small-discount",
    ),
    Claim(
        "theorem-4-needs-small-discount",
        "Refuted: Π_{d_μ}Y_γ̂ is stable for every γ̂ < 1.",
        SKEWED + ", 2 normal features, γ̂ = 0.99",
        skewed,
        _expands,
        refutes=True,
        tolerance=1e-2,
        cases=1000,
    ),
    Claim(
        "E8-sharp",
        "K_n^(-1/(2n)) is sharp: where Lemma 3 is tight, the norm of Y_γ̂ⁿ is 1 there.",
        "every state leads to the first, random d_μ, n = 3",
        continuing,
        lambda case: _threshold(case, printed=False),
        broken_by="E8-exponent",
    ),
    Claim(
        "E8-exponent",
        "Refuted: the threshold is K_n^(-n/2), as K^(-1/2n) reads. There the norm is far below 1.",
        "every state leads to the first, random d_μ, n = 3",
        continuing,
        lambda case: _threshold(case, printed=True),
        refutes=True,
        tolerance=1e-2,
    ),
]
