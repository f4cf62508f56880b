"""Baird's star and Kolter's chain: TD with and without the covariate shift."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.theory.claims.value import kolter_pole
from covshift.experiments.theory.figures import Exhibit
from covshift.learners import (
    TDC,
    Emphasis,
    ExactRatio,
    LearnedRatio,
    LinearTD,
    RhoOnly,
    TabularRatio,
    constant,
    robbins_monro,
    train,
)
from covshift.report.plots import legend_below, panels
from covshift.theory import ProjectedOperator, weighted_norm
from covshift.theory.examples import Problem, bairds_star, kolter_chain
from covshift.theory.simulation import simulate
from covshift.validation import Dense

_CEILING = 1e8


def draw(num_steps: int = 20_000, num_seeds: int = 50) -> Exhibit:
    """Learning curves on Baird's star and on Kolter's chain, and Kolter's exact fixed points."""
    figure, (left, middle, right) = panels(3, height=4.6)
    star = bairds_star()
    start = np.array([1, 1, 1, 1, 1, 1, 10, 1.0])
    at_end = {}
    for label, learner in _learners(star, 0.01, start).items():
        steps, curves = _curves(star, learner, num_steps, num_seeds)
        left.semilogy(steps, np.median(curves, axis=1), label=label)
        at_end[label] = float(np.median(curves[-1]))
    left.set(title="Baird's star", xlabel="transition", ylabel="error of V̂ in the d_π norm")

    pole = kolter_pole(kolter_chain())
    masses = np.linspace(0.5, 0.95, 400)
    for label, ratio_discount in {"d_μ": 0.0, "γ̂ = 0.9": 0.9, "γ̂ = 0.99": 0.99}.items():
        middle.semilogy(
            masses, [_exact(kolter_chain(m), ratio_discount) for m in masses], label=label
        )
    middle.axvline(pole, color="0.6", linewidth=1)
    middle.set(title="Kolter's chain, exact", xlabel="mass of d_μ on the first state")
    middle.set(ylabel="error of the projected fixed point", ylim=(1e-4, 1e4))

    chain = kolter_chain(round(pole, 4))
    for label, learner in _learners(chain, 0.1, np.zeros(1)).items():
        steps, curves = _curves(chain, learner, num_steps, num_seeds)
        right.semilogy(steps, np.median(curves, axis=1), label=label)
    right.set(title=f"Kolter's chain at {pole:.3f}", xlabel="transition")
    right.set(ylabel="error of V̂ in the d_π norm")
    for axes in (left, middle, right):
        legend_below(axes)
    return Exhibit(
        "deadly",
        "Does the covariate shift cure off-policy TD?",
        f"Medians of {num_seeds} seeds. Left: on Baird's star TD with ρ alone diverges to the plot's ceiling, "
        "and so does emphatic TD, whose trace has too much variance. Weighted by c·ρ the error goes to "
        "0 with the exact ratio and with one that is learned from the same stream and normalized. With the ratio "
        f"learned at γ̂ = 0.99 it stays bounded but is at {at_end['c·ρ, c learned with γ̂ = 0.99']:.1g} still "
        "after these steps, since the noise of the one state that matters is multiplied by ρ = 7. TDC is stable "
        f"and creeps, at {at_end['TDC']:.2f} after these steps. Middle: on Kolter's chain the fixed point under d_μ has a pole although "
        "V^π is almost representable; the discounted ratio moves the distribution towards d_π and removes the pole. "
        "Right: the same from samples, at the pole, where TD under d_μ has no fixed point.",
        figure,
    )


def _learners(problem: Problem, step_size: float, start: Dense) -> dict[str, Any]:
    steps = robbins_monro(0.5, halfway=50)
    corrections: dict[str, Any] = {
        "ρ only": RhoOnly(),
        "emphatic, β = γ": Emphasis(problem.discount),
        "c·ρ, exact c": ExactRatio(problem.c_star()),
        "c·ρ, c learned with γ̂ = 0.99": LearnedRatio(TabularRatio(problem.rho, 0.99, steps)),
        "c·ρ, c learned normalized, γ̂ = 1": LearnedRatio(
            TabularRatio(problem.rho, 1.0, steps, normalize=True)
        ),
    }
    learners: dict[str, Any] = {
        label: LinearTD(
            problem.phi, problem.rho, problem.discount, constant(step_size), correction, start
        )
        for label, correction in corrections.items()
    }
    learners["TDC"] = TDC(
        problem.phi,
        problem.rho,
        problem.discount,
        constant(step_size / 2),
        constant(step_size * 5),
        start,
    )
    return learners


def _curves(problem: Problem, learner: Any, num_steps: int, num_seeds: int) -> tuple[Dense, Dense]:
    """The error of every seed at 100 points in time, at most the ceiling."""
    value = problem.bellman.fixed_point()
    stream = simulate(problem.mdp, problem.mu, num_steps, num_seeds, np.random.default_rng(0))

    def error(state: Any) -> Dense:
        difference = np.clip(learner.value(state) - value, -_CEILING, _CEILING)
        return np.asarray(np.minimum(np.sqrt(difference**2 @ problem.d_pi), _CEILING))

    every = num_steps // 100
    with np.errstate(all="ignore"):
        seen = train(learner, learner.init(num_seeds), stream, observe=error, every=every)
    curves = np.nan_to_num(np.array(seen), nan=_CEILING)
    return np.arange(len(seen), dtype=np.float64) * every, np.maximum(curves, 1e-6)


def _exact(problem: Problem, ratio_discount: float) -> float:
    d = problem.d_mu * problem.c_star(ratio_discount)
    projected = ProjectedOperator(problem.bellman, problem.phi, d)
    return weighted_norm(projected.fixed_point() - problem.bellman.fixed_point(), problem.d_pi)
