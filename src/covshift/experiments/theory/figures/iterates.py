"""What repeated application of the projected operators does."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from covshift.experiments.theory.claims.projection import TwoFeatures, oscillating, two_features
from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import legend_below, panels
from covshift.theory import (
    AffineOperator,
    ProjectedOperator,
    concentration,
    safe_ratio_discount,
    spectral_radius,
    weighted_norm,
)
from covshift.theory.examples import Problem, dirichlet
from covshift.validation import Dense, Vector

_STEPS = 60


def draw(seed: int = 0, problems: int = 3000) -> Exhibit:
    """Π_d Y goes to 0 or diverges, keeps its mean with a bias (E16), oscillates on the simplex (E17), and contracts at a safe γ̂."""
    rng = np.random.default_rng(seed)
    shrinking, growing = _find(rng, grows=False), _find(rng, grows=True)
    figure, (left, middle, right) = panels(3)

    problem, phi = growing
    biased = np.column_stack([np.ones(len(phi)), phi[:, 0]])
    for label, operator in {
        "some problems: to 0": ProjectedOperator(shrinking[0].cop, shrinking[1], shrinking[0].d_mu),
        "others: diverges": ProjectedOperator(problem.cop, phi, problem.d_mu),
        "d = d_μ with a bias: neither": ProjectedOperator(problem.cop, biased, problem.d_mu),
    }.items():
        left.semilogy(_norms(operator, operator.d, None), label=label)
    left.set(title="Undiscounted: Π_d Y", xlabel="iteration", ylabel="‖c‖ in the d_μ norm")

    cases = {"an oscillating problem": oscillating(rng), "a typical problem": two_features(rng)}
    for label, case in cases.items():
        middle.plot([w[1] for w in case.iterates(30)], ".-", label=label)
    middle.set(title="With the simplex projection", xlabel="iteration", ylabel="second weight")

    k = concentration(problem.chain_pi, problem.d_mu)
    safe = 0.999 * safe_ratio_discount(k)
    discounted = ProjectedOperator(problem.cop.discounted(safe), phi, problem.d_mu)
    norms = _norms(discounted, problem.d_mu, discounted.fixed_point())
    right.semilogy(norms, label=f"the diverging problem, γ̂ = {safe:.2f}")
    bound = norms[0] * (safe * np.sqrt(k)) ** np.arange(_STEPS + 1)
    right.semilogy(bound, "--", label="Theorem 4's bound")
    right.set_ylim(bottom=1e-12)
    right.set(title="At the safe γ̂", xlabel="iteration", ylabel="distance to the fixed point")
    for axes in (left, middle, right):
        legend_below(axes)

    share = np.mean([_overshoots(two_features(rng)) for _ in range(problems)])
    return Exhibit(
        "iterates",
        "Does repeated application settle?",
        "Left: without normalization the iterates go to 0 or diverge; with a bias and d = d_μ they do "
        "neither, because the mean is preserved (erratum E16). Middle: projecting onto the "
        f"weighted simplex helps, but {share * problems:.0f} of {problems} random two-feature problems (Dirichlet(0.3), random d) "
        "overshoot and oscillate for ever (erratum E17). Right: the problem that diverges on the left contracts "
        f"at Theorem 4's safe discount, here {safe:.2f}, far from 1.",
        figure,
    )


def _find(rng: np.random.Generator, *, grows: bool) -> tuple[Problem, Dense]:
    while True:
        problem = dirichlet(rng, 6, 3, concentration=0.3)
        phi = rng.standard_normal((6, 2))
        radius = spectral_radius(ProjectedOperator(problem.cop, phi, problem.d_mu).on_weights())
        if (radius > 1.05) if grows else (0.6 < radius < 0.9):
            return problem, phi


def _norms(operator: AffineOperator, d: Vector, center: Vector | None) -> list[float]:
    c = np.ones(len(d))
    norms = []
    for _ in range(_STEPS + 1):
        norms.append(weighted_norm(c if center is None else c - center, d))
        c = operator.apply(c)
    return norms


def _overshoots(case: TwoFeatures) -> bool:
    """Whether the iteration is still moving at its end; only a steep slope needs to be run."""
    if case.slope() > -1.0:
        return False
    return all(
        np.abs(after - before).max() > 1e-6 for before, after in pairwise(case.iterates(60)[-3:])
    )
