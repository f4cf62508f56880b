"""How fast Y and Y_γ̂ converge, and to what."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import legend_below, panels
from covshift.theory import AffineOperator, total_variation
from covshift.theory.examples import line_chain
from covshift.validation import Vector

RATIO_DISCOUNTS = (0.9, 0.99, 0.999, 0.9999)


def draw() -> Exhibit:
    """Y against mixing time, Y_γ̂ against γ̂, and the bias that γ̂ costs."""
    figure, (left, middle, right) = panels(3)
    for length in (5, 10, 20, 40):
        problem = line_chain(length)
        errors = _errors(problem.cop, problem.c_star(), 3000)
        rate = problem.chain_pi.mixing_rate()
        left.semilogy(errors, label=f"{length} states, |λ₂| = {rate:.4f}")
    left.set(title="Y: as slow as π mixes", xlabel="iteration", ylabel="largest error")

    problem = line_chain(20)
    for ratio_discount in RATIO_DISCOUNTS:
        operator = problem.cop.discounted(ratio_discount)
        errors = _errors(operator, operator.fixed_point(), 3000)
        middle.semilogy(errors, label=f"γ̂ = {ratio_discount}")
    middle.set_xlim(-50, 1300)
    middle.set(title="Y_γ̂ on 20 states", xlabel="iteration", ylabel="largest error")
    for axes in (left, middle):
        axes.set_ylim(1e-10, 10)
        legend_below(axes)

    horizons = np.logspace(0, 5, 60)
    for length in (5, 10, 20, 40):
        problem = line_chain(length)
        distance = [
            total_variation(problem.d_mu * problem.c_star(1 - 1 / h), problem.d_pi)
            for h in horizons
        ]
        right.loglog(horizons, distance, label=f"{length} states")
    right.set(
        title="What discounting costs",
        xlabel="horizon 1/(1 - γ̂)",
        ylabel="total variation of d̂_π from d_π",
    )
    legend_below(right)
    return Exhibit(
        "mixing",
        "How fast does bootstrapping converge, and what does γ̂ cost?",
        "Left: per step, the error of Y shrinks by the second eigenvalue of P_π, so that a chain that mixes "
        "slowly is learned slowly. Middle: the error of Y_γ̂ shrinks by at least γ̂ per step, towards its own "
        "fixed point. Right: that fixed point is d̂_π/d_μ, which comes near d_π/d_μ only once the horizon "
        "exceeds the mixing time. A smaller γ̂ is faster and more biased.",
        figure,
    )


def _errors(operator: AffineOperator, goal: Vector, num_steps: int) -> list[float]:
    c = np.ones_like(goal)
    errors = []
    for _ in range(num_steps):
        errors.append(float(np.abs(c - goal).max()))
        if errors[-1] < 1e-12:
            break
        c = operator.apply(c)
    return errors
