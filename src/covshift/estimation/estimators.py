"""Estimators of a policy's value: each maps data and a estimand to a number.

Every one folds over weighted trajectories, so that a bootstrap replicate is another weighting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.critic import fit_critic
from covshift.estimation.dice import dual_dice, gen_dice, gradient_dice, minimax_weights
from covshift.estimation.estimand import Estimand, Objective, weighted_totals
from covshift.estimation.experience import Experience, Sample
from covshift.estimation.importance import (
    from_starts,
    per_decision,
    time_of,
    warn_of_cuts,
    weighted,
    weighted_per_decision,
)
from covshift.validation import Vector

Estimate: TypeAlias = Callable[[Experience, Estimand], float]


@final
@dataclass(frozen=True)
class Estimator:
    """An estimator by name.

    Args:
        title: for people.
        estimate: the number.
        needs: which objectives it can answer.
        equation: what it computes.
    """

    title: str
    estimate: Estimate
    needs: tuple[str, ...]
    equation: str


def marginalized(experience: Experience, estimand: Estimand) -> float:
    """Marginalized importance sampling with COP ratios.

    Average: 1/N Σ c(s)ρ r. Discounted: 1/N₀ Σ c(s)ρ r, where c is the ratio of the discounted visits
    Σ γⁱ(P_πᵀ)ⁱ d₀ to the visits for each of the N₀ initial states in the data.
    """
    count, starts, _, _, total = weighted_totals(experience, estimand.ratio(experience))
    return total / (count if estimand.is_average else starts)


def self_normalized(experience: Experience, estimand: Estimand) -> float:
    """The same, divided by what the weights should sum to.

    Average: Σ cρ r / Σ cρ. Discounted: Σ cρ r / [(1 - γ) Σ cρ + γ Σ_ended cρ], since the mass that flows out
    by discounting or by an episode's end is the mass that started, 1 for each initial state.
    """
    _, _, mass, ended, total = weighted_totals(experience, estimand.ratio(experience))
    return total / _expected_mass(estimand, mass, ended)


def doubly_robust(experience: Experience, estimand: Estimand) -> float:
    """A fitted Q, and the ratio's correction of what it leaves over.

    Discounted: E_{d₀}[V̂] + 1/N₀ Σ cρ (r + γV̂(s') - Q̂(s, a)). Average: ĝ + 1/N Σ cρ (r - ĝ + V̂(s') - Q̂(s, a)). Right
    in the limit if either the ratio or the fit is. The correction is self-normalized.
    """
    critic = fit_critic(experience, estimand)
    discount = 1.0 if estimand.is_average else estimand.discount

    def left_over(sample: Sample) -> Vector:
        q_tm1, _, v_t = critic.values(experience, sample)
        return np.asarray(sample.r_t - critic.gain + discount * v_t - q_tm1)

    ratio = estimand.ratio(experience)
    _, _, mass, ended, total = weighted_totals(experience, ratio, left_over)
    return critic.value + total / _expected_mass(estimand, mass, ended)


def fitted_q(experience: Experience, estimand: Estimand) -> float:
    """Fitted Q evaluation at its fixed point: E_{d₀}[V̂], or the gain ĝ of the average reward."""
    return fit_critic(experience, estimand).value


def behavior_value(experience: Experience, estimand: Estimand) -> float:
    """What the behavior policy itself got: the value of μ, beside which a new policy is judged."""
    logs = experience.logs
    every = np.ones(logs.num_trajectories) if experience.weights is None else experience.weights
    weight = every[logs.trajectory]
    if estimand.is_average:
        return float(weight @ logs.reward / weight.sum())
    warn_of_cuts(experience, estimand)
    started = from_starts(logs)
    discounted = estimand.discount ** time_of(logs.trajectory) * logs.reward
    return float((weight * started[logs.trajectory]) @ discounted / every[started].sum())


BOTH, DISCOUNTED = ("discounted", "average"), ("discounted",)

ESTIMATORS: dict[str, Estimator] = {
    "mis": Estimator("COP ratio", marginalized, BOTH, "1/N₀ Σ cρ r"),
    "mis-sn": Estimator("COP ratio, self-normalized", self_normalized, BOTH, "Σ cρ r / mass"),
    "dr": Estimator("doubly robust", doubly_robust, BOTH, "V̂(d₀) + Σ cρ δ / mass"),
    "fqe": Estimator("fitted Q evaluation", fitted_q, BOTH, "V̂(d₀)"),
    "pdis": Estimator("per-decision importance sampling", per_decision, BOTH, "1/n Σ γᵗ ρ₀…ρ_t r"),
    "wis": Estimator("weighted importance sampling", weighted, DISCOUNTED, "Σ w G / Σ w"),
    "wpdis": Estimator(
        "weighted per-decision", weighted_per_decision, DISCOUNTED, "Σ_t γᵗ Σ w_t r / Σ w_t"
    ),
    "dualdice": Estimator("DualDICE", dual_dice, DISCOUNTED, "1/N₀ Σ ζ r"),
    "gendice": Estimator("GenDICE", gen_dice, BOTH, "1/N₀ Σ τ r"),
    "gradientdice": Estimator("GradientDICE", gradient_dice, BOTH, "1/N₀ Σ τ r"),
    "mwl": Estimator("minimax weight learning", minimax_weights, BOTH, "1/N₀ Σ w r"),
    "behavior": Estimator("behavior policy", behavior_value, BOTH, "mean return of μ"),
}
"""Estimators by name."""


def estimators_of(objective: Objective) -> list[str]:
    """Names of those that can answer for it."""
    return [name for name, estimator in ESTIMATORS.items() if objective in estimator.needs]


def find_estimator(name: str, estimand: Estimand) -> Estimator:
    """The estimator, if it can answer the estimand."""
    if name not in ESTIMATORS:
        raise InputError(f"there is no estimator '{name}'; say {' | '.join(ESTIMATORS)}")
    found = ESTIMATORS[name]
    if estimand.objective not in found.needs:
        raise InputError(f"{name} answers for the {' and '.join(found.needs)} value only")
    return found


def _expected_mass(estimand: Estimand, mass: float, ended: float) -> float:
    leaving = (1.0 - estimand.discount) * mass + estimand.discount * ended
    expected = mass if estimand.is_average else leaving
    if not expected > 0:
        raise InputError(
            f"the weights of the transitions sum to {expected:.3g}, so they cannot be normalized: the ratio was "
            "not found; use another ratio_method, a smaller discount or a ridge"
        )
    return expected
