"""What is asked about a policy: the estimand, and the settings that estimators share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.experience import Experience, Sample, Semantics
from covshift.estimation.fitting import fit_ratio
from covshift.estimation.problem import RatioFunction, RatioProblem
from covshift.validation import Vector, check_discount

Objective: TypeAlias = Literal["discounted", "average"]


@final
@dataclass(frozen=True)
class Estimand:
    """Which value of π is asked for.

    `discounted`: J = E[Σ γᵗ r_{t+1}] of π from the start distribution d₀, the distribution of the initial
    states in the data. γ = 1 is the expected return of an episode.

    `average`: lim 1/T Σ r_t of π; where episodes end, the next one starts from d₀ (the semantics
    `restart`).

    γ is part of the estimand. γ̂ is not: below 1 it makes an estimator of the average reward answer for
    d̂_π, follow π with probability γ̂ and else start anew from d_μ, which is nearer to the data. Its answer
    is biased towards the behavior policy's and has less variance.

    Args:
        objective: `discounted` or `average`.
        discount: γ.
        ratio_discount: γ̂ of the estimators with a ratio, for the average reward.
        ratio_method: by which they estimate the ratio; by default as `estimate_ratio`.
        ratio_options: of that method.
        ridge: of the estimators on features, added to the diagonal of mean matrices; a table has none.
    """

    objective: Objective = "discounted"
    discount: float = 0.99
    ratio_discount: float = 1.0
    ratio_method: str | None = None
    ratio_options: dict[str, Any] = field(default_factory=dict)
    ridge: float = 1e-6

    def __post_init__(self) -> None:
        if self.objective not in ("discounted", "average"):
            raise InputError(f"objective must be discounted or average, but it is {self.objective}")
        check_discount("discount", self.discount)
        check_discount("ratio_discount", self.ratio_discount)
        if not self.ridge >= 0:
            raise InputError(f"ridge must not be negative, but it is {self.ridge}")

    @property
    def is_average(self) -> bool:
        """Whether the average reward is asked for."""
        return self.objective == "average"

    def describe(self) -> str:
        """The estimand in words."""
        if self.is_average:
            return "average reward of π" + (
                "" if self.ratio_discount == 1.0 else f" (ratios with γ̂ = {self.ratio_discount:g})"
            )
        return f"E[Σ γᵗ r] of π from d₀, γ = {self.discount:g}"

    def check(self, experience: Experience) -> None:
        """Raises InputError where the data cannot answer."""
        logs = experience.logs
        if not self.is_average and not logs.is_initial.any():
            raise InputError(
                "a discounted value is one from initial states, but none is marked is_initial; "
                "ask for the average"
            )
        if not self.is_average and self.discount == 1.0 and not logs.has_episodes:
            raise InputError(
                f"none of {logs.num_trajectories} trajectories terminated, so the undiscounted return is "
                "not finite; use a discount below 1"
            )

    def semantics(self, experience: Experience) -> Semantics:
        """Of the ratio that answers."""
        if not self.is_average:
            return "visits"
        return "restart" if experience.logs.has_episodes else "continuing"

    def ratio(self, experience: Experience) -> RatioFunction:
        """The ratio whose weights cρ turn the data into π's."""
        method = self.ratio_method
        if method is None:
            method = "empirical" if experience.is_tabular else "least-squares"
        options = dict(self.ratio_options)
        if method == "least-squares" and not experience.is_tabular:
            options.setdefault("ridge", self.ridge)
        problem = RatioProblem(
            experience,
            self.ratio_discount if self.is_average else 1.0,
            self.semantics(experience),
            1.0 if self.is_average else self.discount,
        )
        return fit_ratio(problem, method, **options)


def weighted_totals(
    experience: Experience, ratio: RatioFunction, value: Any = None
) -> tuple[float, float, float, float, float]:
    """Σ w, Σ w₀, Σ cρ, Σ cρ over what ended, Σ cρ · (r or `value(sample)`), over transitions."""
    sums = np.zeros(5)
    for sample in experience.samples():
        weights = pair_weights(sample, ratio)
        number = sample.r_t if value is None else value(sample)
        sums += (
            sample.weight.sum(),
            float(sample.weight @ sample.is_initial_tm1),
            weights.sum(),
            float(weights @ sample.terminated_t),
            float(weights @ number),
        )
    count, starts, mass, ended, total = sums.tolist()
    return count, starts, mass, ended, total


def pair_weights(sample: Sample, ratio: RatioFunction) -> Vector:
    """w · c(s)ρ, the weight of each transition under π."""
    return np.asarray(sample.weight * ratio.at(sample.x_tm1) * sample.rho_tm1)
