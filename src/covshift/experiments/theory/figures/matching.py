"""B7: the paper's two cures, 1/c weights and the matching loss on the same chains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

import numpy as np

from covshift.errors import InputError
from covshift.experiments.theory.claims.matching import teleport
from covshift.experiments.theory.figures import Exhibit
from covshift.report.plots import COLORS, legend_below, panels
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

Method = Callable[[Problem, Dense, float], Vector | None]
"""Where a method comes to rest on a problem with given features and γ̂; None if it does not."""


def draw(num_problems: int = 150, seed: int = 0) -> Exhibit:
    """Mean ratio, error of the sampling law, and share that does not come to rest, by γ̂."""
    found = _measure(num_problems, seed)
    figure, (scale, accuracy, shares) = panels(3, width=11.0, height=4.4)
    ticks = np.arange(len(RATIO_DISCOUNTS))
    for color, name in zip(COLORS, METHODS, strict=False):
        at = [k for k, gamma in enumerate(RATIO_DISCOUNTS) if (name, gamma) in found]
        results = [found[name, RATIO_DISCOUNTS[k]] for k in at]
        for axes, values in (
            (scale, [np.median([mean for mean, _ in _rested(result)]) for result in results]),
            (accuracy, [np.median([error for _, error in _rested(result)]) for result in results]),
            (shares, [_unrested(result) for result in results]),
        ):
            marker = "D" if len(at) == 1 else "o"
            axes.plot(ticks[at], values, marker=marker, color=color, label=name, alpha=0.85)
    for axes in (scale, accuracy, shares):
        axes.set_xticks(ticks, [str(gamma) for gamma in RATIO_DISCOUNTS])
        axes.set(xlabel="γ̂")
        axes.set_ylim(bottom=0)
    scale.set(title="Scale", ylabel="median E_μ[ĉ]")
    accuracy.set(title="Accuracy", ylabel="median TV of the law ∝ ĉ from d_π")
    shares.set(title="Stability", ylabel="% that diverge or cycle")
    legend_below(accuracy, ncols=2)
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
    "discount, squared loss": (_squared, RATIO_DISCOUNTS),
    "simplex projection, γ̂ = 1": (_simplex, (1.0,)),
    "1/c weights": (_dual, RATIO_DISCOUNTS[:-1]),
    "matching loss, exponential": (_matching, RATIO_DISCOUNTS),
    "matching loss, averaged targets": (_averaged, RATIO_DISCOUNTS),
    "matching loss, safe link on the floor": (_safe, RATIO_DISCOUNTS),
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


def _text(found: dict[tuple[str, float], Results], num_problems: int) -> str:
    squared, simplex, dual, matching, averaged, safe = METHODS

    def error(name: str, gamma: float) -> str:
        return f"{np.median([error for _, error in _rested(found[name, gamma])]):.2f}"

    def share(name: str, gamma: float) -> str:
        return f"{_unrested(found[name, gamma]):.1f} %"

    collapse = np.median([mean for mean, _ in _rested(found[dual, 0.999])])
    return (
        f"{num_problems} problems of 6 states, a bias and 2 normal features: π moves by rows drawn from a Dirichlet(0.1), μ draws "
        "every state from one d_μ. Medians are over the problems on which a method comes to rest. Scale: a bias keeps E_μ[ĉ] = 1 under squared and matching loss, the simplex enforces it, and 1/c "
        f"weights lose it ({collapse:.3f} at γ̂ = 0.999). Stability: fits by squared loss diverge without bound in "
        f"{share(squared, 0.99)} of problems at γ̂ = 0.99 and {share(squared, 1.0)} at 1, where the simplex-projected "
        f"iteration does not come to rest in {share(simplex, 1.0)}. Under the matching loss c stays positive and of mean 1 "
        f"whatever happens, but in {share(matching, 0.99)} and {share(matching, 1.0)} it cycles, with the safe link on the "
        f"floor in {share(safe, 0.99)} and {share(safe, 1.0)}; averaging targets half and half with the ratio before leaves "
        f"{share(averaged, 0.99)} and {share(averaged, 1.0)}. Accuracy at γ̂ = 0.99: {error(squared, 0.99)} by squared loss, "
        f"{error(dual, 0.99)} by 1/c weights, {error(matching, 0.99)} by matching loss and {error(safe, 0.99)} with the safe "
        f"link; at γ̂ = 1 the matching loss needs no projection and has {error(matching, 1.0)}, the simplex "
        f"{error(simplex, 1.0)}."
    )
