"""Estimators of a policy's value: each maps data and an estimand to a number.

Each one sums over weighted trajectories, so that a bootstrap replicate is another weighting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import nan
from typing import Literal, TypeAlias, final

from covshift.errors import InputError
from covshift.estimation.critic import fit_critic
from covshift.estimation.dice import dual_dice, gen_dice, gradient_dice, minimax_weights
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.experience import Experience
from covshift.estimation.importance import (
    Terms,
    behavior_terms,
    behavior_value,
    per_decision,
    per_decision_terms,
    weighted,
    weighted_per_decision,
    weighted_terms,
)
from covshift.estimation.totals import cross_fitted_totals, weighted_totals

Trust: TypeAlias = Literal["ratio", "value", "either", "products", "data"]
Estimate: TypeAlias = Callable[[Experience, Estimand], float]


@final
@dataclass(frozen=True)
class Estimator:
    """An entry of `ESTIMATORS`.

    Args:
        title: its name in figures and tables.
        estimate: the function that computes the number.
        objectives: the objectives it can answer for.
        trusts: what must be right for the answer to be: a `ratio`, a fitted `value`, `either` of them, `products` of ρ, or
            only the `data`.
        terms: what each trajectory adds to a numerator and a denominator, for estimators that are the ratio of two sums of independent terms.
    """

    title: str
    estimate: Estimate
    objectives: tuple[Objective, ...]
    trusts: Trust = "ratio"
    terms: Callable[[Experience, Estimand], Terms] | None = None


def marginalized(experience: Experience, estimand: Estimand) -> float:
    """Marginalized importance sampling with COP ratios.

    Average: 1/N Σ c(s)ρ r over the N transitions. Discounted: 1/N₀ Σ c(s)ρ r, where c is the ratio of the
    discounted visits Σ γⁱ(P_πᵀ)ⁱ d₀ to the visits per initial state, of which the data hold N₀.
    """
    sums = weighted_totals(experience, estimand)
    return sums.reward / (sums.transitions if estimand.is_average else sums.starts)


def self_normalized(experience: Experience, estimand: Estimand) -> float:
    """The sum of `marginalized`, divided by what its weights should sum to.

    Average: Σ cρ r / Σ cρ. Discounted: Σ cρ r / [(1 - γ) Σ cρ + γ Σ_ended cρ], since the mass that leaves by
    discounting or by an episode's end is the mass that started, 1 per initial state.
    """
    sums = weighted_totals(experience, estimand)
    return sums.reward / sums.expected_mass(estimand)


def doubly_robust(experience: Experience, estimand: Estimand) -> float:
    """A fitted Q, whose errors are corrected with the ratio.

    Discounted: E_{d₀}[V̂] + 1/N₀ Σ cρ (r + γV̂(s') - Q̂(s, a)). Average: ĝ + 1/N Σ cρ (r - ĝ + V̂(s') - Q̂(s, a)).
    It is consistent if either the ratio or the fit is. The correction is self-normalized.
    """
    critic = fit_critic(experience, estimand)
    sums = weighted_totals(experience, estimand, fit_critic)
    return critic.value + sums.error / sums.expected_mass(estimand)


def cross_fitted(experience: Experience, estimand: Estimand) -> float:
    """`doubly_robust` in which each trajectory meets a ratio and a Q that were fitted to other trajectories.

    The trajectories are divided into five folds. So no trajectory corrects a fit that has already seen it.
    """
    sums = cross_fitted_totals(experience, estimand, fit_critic)
    fitted = sums.fitted / (sums.mass if estimand.is_average else sums.starts)
    return fitted + sums.error / sums.expected_mass(estimand)


def fitted_q(experience: Experience, estimand: Estimand) -> float:
    """Fitted Q evaluation at its fixed point: E_{d₀}[V̂], or the gain ĝ of the average reward."""
    return fit_critic(experience, estimand).value


def two_opinions(experience: Experience, estimand: Estimand) -> tuple[float, float]:
    """`self_normalized` and `fitted_q` from the sums that `doubly_robust` needs; NaN if one has no answer.

    The first relies on the ratio alone and the second on the fitted Q alone, so that both are right only if they agree.
    """
    try:
        sums = weighted_totals(experience, estimand, fit_critic)
        return sums.reward / sums.expected_mass(estimand), fit_critic(experience, estimand).value
    except InputError:
        return nan, nan


_DISCOUNTED: tuple[Objective, ...] = ("discounted",)
_BOTH: tuple[Objective, ...] = ("discounted", "average")

ESTIMATORS: dict[str, Estimator] = {
    "mis": Estimator("COP ratio", marginalized, _BOTH),
    "mis-sn": Estimator("COP ratio, self-normalized", self_normalized, _BOTH),
    "dr": Estimator("doubly robust", doubly_robust, _BOTH, "either"),
    "dr-cf": Estimator("doubly robust, cross-fitted", cross_fitted, _BOTH, "either"),
    "fqe": Estimator("fitted Q evaluation", fitted_q, _BOTH, "value"),
    "pdis": Estimator(
        "per-decision importance sampling", per_decision, _BOTH, "products", per_decision_terms
    ),
    "wis": Estimator(
        "weighted importance sampling", weighted, _DISCOUNTED, "products", weighted_terms
    ),
    "wpdis": Estimator("weighted per-decision", weighted_per_decision, _DISCOUNTED, "products"),
    "dualdice": Estimator("DualDICE", dual_dice, _DISCOUNTED),
    "gendice": Estimator("GenDICE", gen_dice, _BOTH),
    "gradientdice": Estimator("GradientDICE", gradient_dice, _BOTH),
    "mwl": Estimator("minimax weight learning", minimax_weights, _BOTH),
    "behavior": Estimator("behavior policy", behavior_value, _BOTH, "data", behavior_terms),
}
"""Estimators by name."""


def estimators_of(objective: Objective) -> list[str]:
    """The names of the estimators that can answer for an objective, without `dr-cf`, which fits everything five times."""
    return [
        name
        for name, estimator in ESTIMATORS.items()
        if objective in estimator.objectives and name != "dr-cf"
    ]


def find_estimator(name: str, estimand: Estimand) -> Estimator:
    """The estimator of this name, if it can answer for the estimand."""
    if name not in ESTIMATORS:
        raise InputError(f"there is no estimator '{name}'; say {' | '.join(ESTIMATORS)}")
    found = ESTIMATORS[name]
    if estimand.objective not in found.objectives:
        raise InputError(f"{name} answers for the {' and '.join(found.objectives)} value only")
    return found
