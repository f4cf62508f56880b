"""B7, the matching loss, next to squared loss with the paper's two cures and with 1/c weights (B1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from covshift.errors import InputError
from covshift.experiments.theory.claims.matching import teleport
from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import COLORS, panels
from covshift.rules import EXPONENTIAL, SAFE
from covshift.theory import (
    MatchingOperator,
    ProjectedOperator,
    dual_weighting,
    fit_span,
    project_weighted_simplex,
    total_variation,
)
from covshift.theory.examples import Problem
from covshift.validation import Dense, Vector

RATIO_DISCOUNTS = (0.5, 0.9, 0.99, 0.999, 1.0)
_MAX_FITS = 100
_MARKERS = "oD^svP"

Method = Callable[[Problem, Dense, float], Vector | None]
"""Where a method comes to rest on a problem with given features and γ̂; None if it does not."""


def draw(num_problems: int = 150, seed: int = 0) -> Exhibit:
    """Mean ratio, error of the sampling law, and share that does not come to rest, by γ̂."""
    found = _measure(num_problems, seed)
    figure, axes = panels(3, width=11.0, height=4.4)
    scale, accuracy, stability = axes
    ticks = np.arange(len(RATIO_DISCOUNTS))
    for k, (name, (_, gammas)) in enumerate(METHODS.items()):
        results = [found[name, gamma] for gamma in gammas]
        shown = [RATIO_DISCOUNTS.index(gamma) for gamma in gammas]
        # Methods of equal value stand side by side.
        x = ticks[shown] + 0.1 * (k - (len(METHODS) - 1) / 2)
        for panel, values in (
            (scale, [_median_mean(result) for result in results]),
            (accuracy, [_median_error(result) for result in results]),
            (stability, [_unrested(result) for result in results]),
        ):
            panel.plot(x, values, _MARKERS[k], color=COLORS[k], label=name, ms=5, clip_on=False)
            panel.plot(x, values, color=COLORS[k], alpha=0.4)
    for panel in axes:
        panel.set_xticks(ticks, [str(gamma) for gamma in RATIO_DISCOUNTS])
        panel.set(xlabel="the ratio's discount γ̂")
    scale.set(title="Scale", ylabel="median E_μ[ĉ]; 1 is exact", ylim=(0.0, 1.1))
    accuracy.set(title="Accuracy", ylabel="median total variation of d_μĉ from d_π; 0 is exact")
    stability.set(title="Stability", ylabel="% of problems that do not come to rest")
    stability.set_ylim(bottom=0.0)
    figure.legend(*scale.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return Exhibit(
        "matching",
        "Can a ratio be positive, of the right size and stable at once?",
        _text(found, num_problems),
        figure,
    )


def _squared(problem: Problem, phi: Dense, gamma: float) -> Vector | None:
    """Least squares under d_μ; at γ̂ = 1 from c = 1, whose mean it keeps."""
    projected = ProjectedOperator(problem.cop.discounted(gamma), phi, problem.d_mu)
    matrix = projected.on_weights()
    eigenvalues = np.linalg.eigvals(matrix)
    if gamma == 1.0:  # The mean is kept, not contracted: one eigenvalue is 1.
        eigenvalues = np.delete(eigenvalues, np.argmin(np.abs(eigenvalues - 1.0)))
    if np.abs(eigenvalues).max() >= 1.0:
        return None
    if gamma < 1.0:
        return projected.fixed_point()
    system = np.vstack([np.eye(len(matrix)) - matrix, problem.d_mu @ phi])
    right = np.append(np.zeros(len(matrix)), 1.0)
    return np.asarray(phi @ np.linalg.lstsq(system, right)[0])


def _simplex(problem: Problem, phi: Dense, gamma: float) -> Vector | None:
    """Least squares, then the projection onto the weights whose ratio is a distribution."""
    operator, d_mu = problem.cop.discounted(gamma), problem.d_mu
    w = fit_span(np.ones(len(d_mu)), phi, d_mu)
    for _ in range(_MAX_FITS):
        last = w
        w = project_weighted_simplex(fit_span(operator.apply(phi @ w), phi, d_mu), phi, d_mu)
        if np.abs(w - last).max() < 1e-6:
            return np.asarray(phi @ w)
    return None


def _dual(problem: Problem, phi: Dense, gamma: float) -> Vector | None:
    """Least squares under d_μ/c with the exact c."""
    nu = dual_weighting(problem.c_star(gamma), problem.d_mu)
    return ProjectedOperator(problem.cop.discounted(gamma), phi, nu).fixed_point()


def _matching(problem: Problem, phi: Dense, gamma: float) -> Vector | None:
    return _rest(MatchingOperator(problem.cop.discounted(gamma), phi, EXPONENTIAL))


def _averaged(problem: Problem, phi: Dense, gamma: float) -> Vector | None:
    return _rest(MatchingOperator(problem.cop.discounted(gamma), phi, averaging=0.5))


def _safe(problem: Problem, phi: Dense, gamma: float) -> Vector | None:
    return _rest(MatchingOperator(problem.cop.discounted(gamma), phi, SAFE, floored=True))


def _rest(matching: MatchingOperator) -> Vector | None:
    try:
        return matching.fixed_point(max_steps=_MAX_FITS)
    except InputError:
        return None


METHODS: dict[str, tuple[Method, tuple[float, ...]]] = {
    "squared loss": (_squared, RATIO_DISCOUNTS),
    "squared loss, simplex projection": (_simplex, (1.0,)),
    "squared loss, 1/c weights": (_dual, RATIO_DISCOUNTS[:-1]),
    "matching loss, exponential link": (_matching, RATIO_DISCOUNTS),
    "matching loss, averaged targets": (_averaged, RATIO_DISCOUNTS),
    "matching loss, safe link and floor": (_safe, RATIO_DISCOUNTS),
}

Results = list[tuple[float, float] | None]
"""E_μ[ĉ] and the law's error for each problem; None where the method does not come to rest."""


def _problems(num_problems: int, seed: int) -> Iterator[tuple[Problem, Dense]]:
    rng = np.random.default_rng(seed)
    for _ in range(num_problems):
        p_pi = 0.98 * rng.dirichlet(np.full(6, 0.1), 6) + 0.02 / 6
        d_mu = 0.98 * rng.dirichlet(np.ones(6)) + 0.02 / 6
        yield teleport(p_pi, d_mu), np.column_stack([np.ones(6), rng.standard_normal((6, 2))])


def _measure(num_problems: int, seed: int) -> dict[tuple[str, float], Results]:
    found: dict[tuple[str, float], Results] = defaultdict(list)
    for problem, phi in _problems(num_problems, seed):
        for name, (method, gammas) in METHODS.items():
            for gamma in gammas:
                c = method(problem, phi, gamma)
                found[name, gamma].append(None if c is None else _mean_and_error(problem, c))
    return dict(found)


def _mean_and_error(problem: Problem, c: Vector) -> tuple[float, float]:
    law = problem.d_mu * np.maximum(c, 0.0)
    error = total_variation(law / law.sum(), problem.d_pi) if law.sum() > 0 else 1.0
    return float(problem.d_mu @ c), error


def _rested(results: Results) -> list[tuple[float, float]]:
    return [result for result in results if result is not None]


def _unrested(results: Results) -> float:
    return 100.0 * sum(result is None for result in results) / len(results)


def _median_mean(results: Results) -> float:
    return float(np.median([mean for mean, _ in _rested(results)]))


def _median_error(results: Results) -> float:
    return float(np.median([error for _, error in _rested(results)]))


def _text(found: dict[tuple[str, float], Results], num_problems: int) -> str:
    squared, simplex, dual, matching, averaged, safe = METHODS

    def error(name: str, gamma: float) -> str:
        return f"{_median_error(found[name, gamma]):.2f}"

    def share(name: str, gamma: float) -> str:
        return f"{_unrested(found[name, gamma]):.1f} %"

    def shares(name: str) -> str:
        return f"{share(name, 0.99)} at γ̂ = 0.99 and {share(name, 1.0)} at 1"

    return (
        f"{num_problems} random problems of 6 states with a bias and 2 normal features. Rows of P_π are drawn from a "
        "Dirichlet(0.1), and μ draws every state from one d_μ. Medians are over the problems on which a method comes to rest. "
        "Points of equal height stand side by side. "
        "Left: with a bias, squared loss and matching loss keep E_μ[ĉ] = 1, and the simplex projection enforces it. Weights 1/c "
        f"lose it: {_median_mean(found[dual, 0.999]):.3f} at γ̂ = 0.999. "
        f"Middle: at γ̂ = 0.99 the error is {error(squared, 0.99)} by squared loss, {error(dual, 0.99)} with 1/c weights, "
        f"{error(matching, 0.99)} by matching loss and {error(safe, 0.99)} with the safe link. At γ̂ = 1 the matching loss, which "
        f"needs no projection, has {error(matching, 1.0)}, and the simplex projection {error(simplex, 1.0)}. "
        f"Right: squared loss diverges without bound in {shares(squared)}. Methods that iterate count as not at rest if they "
        f"still change after {_MAX_FITS} fits: with the simplex projection in {share(simplex, 1.0)}, by matching loss in "
        f"{shares(matching)}, with the safe link and the floor in {shares(safe)}, and with targets averaged half and half with the "
        f"previous ratio in {shares(averaged)}. Even there the matching loss keeps c positive and its mean at 1."
    )
