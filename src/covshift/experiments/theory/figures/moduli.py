"""How the moduli of 1/c weighting (B1) and emphasis (B2), and the means of c (B3), change with γ̂."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import legend_below, panels
from covshift.theory import (
    chi_squared,
    dual_modulus,
    dual_weighting,
    effective_sample_share,
    emphatic_modulus,
    induced_norm,
)
from covshift.theory.examples import dirichlet, four_rooms


def draw(seed: int = 3) -> Exhibit:
    """Norms against their bounds on a random MDP, and means of c on four rooms."""
    problem = dirichlet(np.random.default_rng(seed), 6, 3, concentration=0.3)
    figure, (left, right) = panels(2)
    gap = np.logspace(-4, np.log10(0.95), 120)
    ratios = [problem.c_star(1 - g) for g in gap]
    d_mu = problem.d_mu
    norms = {
        "‖γP_π‖ in d̂_π: TD weighted by c·ρ": [
            problem.discount * induced_norm(problem.chain_pi.p, d_mu * c) for c in ratios
        ],
        "its bound γ√((1 - κ)/γ̂), B2": [
            emphatic_modulus(c, 1 - g, problem.discount) for c, g in zip(ratios, gap, strict=True)
        ],
        "‖γ̂Y‖ in d_μ/c: 1/c-weighted COP": [
            (1 - g) * problem.cop.induced_norm(dual_weighting(c, d_mu))
            for c, g in zip(ratios, gap, strict=True)
        ],
        "its bound √(γ̂(1 - κ)), B1": [
            dual_modulus(c, 1 - g) for c, g in zip(ratios, gap, strict=True)
        ],
        "‖γ̂Y‖ in d_μ: uniform COP": [(1 - g) * problem.cop.induced_norm(d_mu) for g in gap],
    }
    for index, (label, values) in enumerate(norms.items()):
        style = "--" if "bound" in label else "-"
        left.plot(1 / gap, values, style, color=f"C{(0, 0, 1, 1, 2)[index]}", label=label)
    left.axhline(1.0, color="0.5", linewidth=1)
    left.axvline(1 / (1 - problem.discount**2), color="0.5", linewidth=1, linestyle=":")
    left.set(xscale="log", ylim=(0, 2), xlabel="horizon 1/(1 - γ̂)", ylabel="modulus")
    left.set_title("Contraction on a random MDP (dotted: γ̂ = γ²)")

    rooms = four_rooms()
    horizons = np.logspace(0, 6, 60)
    exact = [rooms.c_star(1 - 1 / h) for h in horizons]
    right.loglog(horizons, [rooms.d_mu @ c for c in exact], label="E_μ[c]")
    right.loglog(horizons, [rooms.d_pi @ c for c in exact], label="E_π[c]")
    shares = [effective_sample_share(c, rooms.d_mu) for c in exact]
    right.loglog(horizons, [1 / s for s in shares], "--", label="N/ESS = E[c] under d̂_π")
    limit = 1 + chi_squared(rooms.d_pi, rooms.d_mu)
    right.axhline(limit, color="0.5", linewidth=1, linestyle=":")
    right.set(title="Means of c on four rooms", xlabel="horizon 1/(1 - γ̂)", ylabel="mean ratio")
    for axes in (left, right):
        legend_below(axes)
    return Exhibit(
        "moduli",
        "What does a discounted ratio guarantee, and how can one tell that it went wrong?",
        "Left: TD weighted by c·ρ contracts wherever its curve is below 1, which is certain for γ̂ ≥ γ² (B2). The "
        "ratio itself contracts under 1/c weights for every γ̂ (B1), under uniform weights only for a short "
        "horizon. Right: in a continuing problem E_μ[c] stays 1 and E_π[c] never falls below it; both on-policy "
        f"means grow to 1 + χ² = {limit:.1f} (dotted), where the effective sample is {100 / limit:.1f} % of the data. "
        "If the on-policy mean of a learned ratio falls towards 0, the ratio is underestimated; discounting cannot "
        "cause that (B3).",
        figure,
    )
