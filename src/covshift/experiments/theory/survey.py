"""A survey for B1: how often learning the ratio is unstable, for each way of weighting its errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from covshift.theory import (
    ProjectedOperator,
    as_dense,
    dual_weighting,
    spectral_radius,
    total_variation,
)
from covshift.theory.examples import Problem, dirichlet, garnet
from covshift.validation import Dense, Vector

GENERATORS: dict[str, Callable[[np.random.Generator], Problem]] = {
    "Dirichlet(0.3)": lambda rng: dirichlet(rng, 6, 3, num_features=2, concentration=0.3),
    "Garnet(6, 3, 2)": lambda rng: garnet(rng, 6, 3, 2, num_features=2),
}
WEIGHTINGS = ("uniform", "source c", "destination c", "1/c")
RATIO_DISCOUNTS = (0.5, 0.9, 0.99, 0.999)
ESTIMATE_ERRORS = (0.0, 0.01, 0.1, 0.5, 1.0)


@final
@dataclass(frozen=True)
class SurveyRow:
    """One problem at one γ̂.

    Attributes:
        generator: name of the problem's generator.
        ratio_discount: γ̂.
        radius: spectral radius of the projected operator for each weighting.
        source_tabular_radius: the same without projection, drawn ∝ c at the source.
        mean_ratio: E_μ[ĉ] at the projected fixed point, uniform and 1/c weighting; here the second
            feature is replaced by a bias.
        distance: total variation between the distribution ∝ max(ĉ, 0)·d_μ and d̂_π, for both weightings.
        estimated_radius: spectral radius under 1/c weights with log-normal errors of each of `ESTIMATE_ERRORS`.
    """

    generator: str
    ratio_discount: float
    radius: tuple[float, ...]
    source_tabular_radius: float
    mean_ratio: tuple[float, float]
    distance: tuple[float, float]
    estimated_radius: tuple[float, ...]


def survey(num_problems: int, seed: int = 0) -> Iterator[SurveyRow]:
    """Draws `num_problems` from each generator and measures each at every γ̂."""
    for index, (name, generate) in enumerate(GENERATORS.items()):
        rng = np.random.default_rng([seed, index])
        for _ in range(num_problems):
            problem = generate(rng)
            for ratio_discount in RATIO_DISCOUNTS:
                yield _measure(name, problem, ratio_discount, rng)


def source_weighted_matrix(problem: Problem, c: Vector) -> Dense:
    """The COP operator when transitions are drawn ∝ c(s) at the source, without γ̂.

    (s, a, s') then has mass c(s)d_μ(s)μ(a|s)P(s'|s, a), and the mean of ρx(s) given s' is
    Σ_s c(s)d_μ(s)P_π(s'|s)x(s) / Σ_s c(s)d_μ(s)P_μ(s'|s).
    """
    mass = c * problem.d_mu
    arrivals = problem.chain_mu.push(mass)
    return as_dense(problem.chain_pi.p).T * mass[None, :] / arrivals[:, None]


def _measure(
    name: str, problem: Problem, ratio_discount: float, rng: np.random.Generator
) -> SurveyRow:
    operator = problem.cop.discounted(ratio_discount)
    c, d_mu, phi = problem.c_star(ratio_discount), problem.d_mu, problem.phi
    nu = dual_weighting(c, d_mu)
    uniform, destination, dual = (ProjectedOperator(operator, phi, d) for d in (d_mu, d_mu * c, nu))
    source = source_weighted_matrix(problem, c)
    arrivals = np.sqrt(problem.chain_mu.push(c * d_mu))
    on_weights: Dense = np.asarray(
        np.linalg.lstsq(arrivals[:, None] * phi, arrivals[:, None] * (source @ phi))[0],
        dtype=np.float64,
    )
    with_bias = np.column_stack([np.ones(len(c)), phi[:, 0]])
    fixed = [ProjectedOperator(operator, with_bias, d).fixed_point() for d in (d_mu, nu)]
    noise = rng.standard_normal(len(c))
    return SurveyRow(
        generator=name,
        ratio_discount=ratio_discount,
        radius=(
            spectral_radius(uniform.on_weights()),
            ratio_discount * spectral_radius(on_weights),
            spectral_radius(destination.on_weights()),
            spectral_radius(dual.on_weights()),
        ),
        source_tabular_radius=ratio_discount * spectral_radius(source),
        mean_ratio=(float(d_mu @ fixed[0]), float(d_mu @ fixed[1])),
        distance=(_distance(fixed[0], c, d_mu), _distance(fixed[1], c, d_mu)),
        estimated_radius=tuple(
            spectral_radius(
                ProjectedOperator(operator, phi, nu * np.exp(error * noise)).on_weights()
            )
            for error in ESTIMATE_ERRORS
        ),
    )


def _distance(estimate: Vector, c: Vector, d_mu: Vector) -> float:
    law = d_mu * np.maximum(estimate, 0.0)
    return total_variation(law / law.sum(), d_mu * c) if law.sum() > 0 else 1.0
