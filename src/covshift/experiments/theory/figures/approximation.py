"""Theorem 1 along the way from d_μ to d_π."""

from __future__ import annotations

import numpy as np

from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import legend_below, panels
from covshift.theory import approximation_error
from covshift.theory.examples import dirichlet


def draw(seed: int = 7) -> Exhibit:
    """Error and bounds for d between d_μ and d_π, and a little past it."""
    problem = dirichlet(np.random.default_rng(seed), 8, 3, concentration=0.5, discount=0.9)
    rng = np.random.default_rng(seed)
    free = rng.standard_normal((8, 3))
    biased = np.column_stack([np.ones(8), free[:, 1:]])
    figure, axes = panels(2)
    way = np.linspace(0.0, 1.25, 126)
    for panel, (title, phi) in zip(
        axes, {"without a bias": free, "with a bias": biased}.items(), strict=True
    ):
        found = []
        for share in way:
            d = np.maximum((1 - share) * problem.d_mu + share * problem.d_pi, 1e-6)
            found.append(approximation_error(problem.bellman, phi, d / d.sum(), problem.d_pi))
        for label, name in (
            ("error", "error"),
            ("displayed bound", "bound"),
            ("looser bound", "looser_bound"),
        ):
            values = np.array([getattr(row, name) for row in found])
            (line,) = panel.semilogy(way, values, label=label)
            best = int(np.argmin(values))
            panel.plot(way[best], values[best], "o", color=line.get_color())
        panel.axvline(1.0, color="0.5", linewidth=1, linestyle=":")
        panel.set(title=f"Features {title}", ylabel="in the d_π norm")
        panel.set_xlabel("d: from d_μ (0) to d_π (1) and beyond")
        legend_below(panel)
    return Exhibit(
        "approximation",
        "Is d_π the best distribution to learn a value under?",
        "Theorem 1 for projections under d between d_μ and d_π; dots mark each curve's minimum. The looser "
        "bound is always smallest at d_π, the displayed bound if the features include a bias. The error "
        "itself, and without a bias the displayed bound, are often smaller elsewhere, although the paper says that "
        "d_π minimizes the error (erratum E9). Where a curve is missing, the bound is infinite.",
        figure,
    )
