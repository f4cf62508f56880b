"""Estimators of a policy's value: each maps data and an estimand to a number.

Each one sums over weighted trajectories, so that a bootstrap replicate is another weighting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.critic import fit_critic
from covshift.estimation.dice import dual_dice, gen_dice, gradient_dice, minimax_weights
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.experience import Experience, Sample
from covshift.estimation.importance import (
    from_starts,
    per_decision,
    step_in_trajectory,
    warn_of_cuts,
    weighted,
    weighted_per_decision,
)
from covshift.estimation.problem import RatioFunction
from covshift.validation import Vector

Estimate: TypeAlias = Callable[[Experience, Estimand], float]


@final
@dataclass(frozen=True)
class Estimator:
    """An entry of `ESTIMATORS`.

    Args:
        title: its name in figures and tables.
        estimate: the function that computes the number.
        objectives: the objectives it can answer for.
    """

    title: str
    estimate: Estimate
    objectives: tuple[Objective, ...]


def marginalized(experience: Experience, estimand: Estimand) -> float:
    """Marginalized importance sampling with COP ratios.

    Average: 1/N Σ c(s)ρ r over the N transitions. Discounted: 1/N₀ Σ c(s)ρ r, where c is the ratio of the
    discounted visits Σ γⁱ(P_πᵀ)ⁱ d₀ to the visits per initial state, of which the data hold N₀.
    """
    count, starts, _, _, total = _weighted_totals(experience, estimand.ratio(experience))
    return total / (count if estimand.is_average else starts)


def self_normalized(experience: Experience, estimand: Estimand) -> float:
    """The sum of `marginalized`, divided by what its weights should sum to.

    Average: Σ cρ r / Σ cρ. Discounted: Σ cρ r / [(1 - γ) Σ cρ + γ Σ_ended cρ], since the mass that leaves by
    discounting or by an episode's end is the mass that started, 1 per initial state.
    """
    _, _, mass, ended, total = _weighted_totals(experience, estimand.ratio(experience))
    return total / _expected_mass(estimand, mass, ended)


def doubly_robust(experience: Experience, estimand: Estimand) -> float:
    """A fitted Q, whose errors are corrected with the ratio.

    Discounted: E_{d₀}[V̂] + 1/N₀ Σ cρ (r + γV̂(s') - Q̂(s, a)). Average: ĝ + 1/N Σ cρ (r - ĝ + V̂(s') - Q̂(s, a)).
    It is consistent if either the ratio or the fit is. The correction is self-normalized.
    """
    critic = fit_critic(experience, estimand)
    discount = 1.0 if estimand.is_average else estimand.discount

    def error(sample: Sample) -> Vector:
        q_tm1, v_t = critic.values(experience, sample)
        return np.asarray(sample.r_t - critic.gain + discount * v_t - q_tm1)

    ratio = estimand.ratio(experience)
    _, _, mass, ended, total = _weighted_totals(experience, ratio, error)
    return critic.value + total / _expected_mass(estimand, mass, ended)


def fitted_q(experience: Experience, estimand: Estimand) -> float:
    """Fitted Q evaluation at its fixed point: E_{d₀}[V̂], or the gain ĝ of the average reward."""
    return fit_critic(experience, estimand).value


def behavior_value(experience: Experience, estimand: Estimand) -> float:
    """The value of the behavior policy μ in the data, to compare a new policy with."""
    logs, every = experience.logs, experience.trajectory_weights
    weight = every[logs.trajectory]
    if estimand.is_average:
        return float(weight @ logs.reward / weight.sum())
    warn_of_cuts(experience, estimand)
    started = from_starts(logs)
    discounted = estimand.discount ** step_in_trajectory(logs) * logs.reward
    return float((weight * started[logs.trajectory]) @ discounted / every[started].sum())


_DISCOUNTED: tuple[Objective, ...] = ("discounted",)
_BOTH: tuple[Objective, ...] = ("discounted", "average")

ESTIMATORS: dict[str, Estimator] = {
    "mis": Estimator("COP ratio", marginalized, _BOTH),
    "mis-sn": Estimator("COP ratio, self-normalized", self_normalized, _BOTH),
    "dr": Estimator("doubly robust", doubly_robust, _BOTH),
    "fqe": Estimator("fitted Q evaluation", fitted_q, _BOTH),
    "pdis": Estimator("per-decision importance sampling", per_decision, _BOTH),
    "wis": Estimator("weighted importance sampling", weighted, _DISCOUNTED),
    "wpdis": Estimator("weighted per-decision", weighted_per_decision, _DISCOUNTED),
    "dualdice": Estimator("DualDICE", dual_dice, _DISCOUNTED),
    "gendice": Estimator("GenDICE", gen_dice, _BOTH),
    "gradientdice": Estimator("GradientDICE", gradient_dice, _BOTH),
    "mwl": Estimator("minimax weight learning", minimax_weights, _BOTH),
    "behavior": Estimator("behavior policy", behavior_value, _BOTH),
}
"""Estimators by name."""


def estimators_of(objective: Objective) -> list[str]:
    """The names of the estimators that can answer for an objective."""
    return [name for name, estimator in ESTIMATORS.items() if objective in estimator.objectives]


def find_estimator(name: str, estimand: Estimand) -> Estimator:
    """The estimator of this name, if it can answer for the estimand."""
    if name not in ESTIMATORS:
        raise InputError(f"there is no estimator '{name}'; say {' | '.join(ESTIMATORS)}")
    found = ESTIMATORS[name]
    if estimand.objective not in found.objectives:
        raise InputError(f"{name} answers for the {' and '.join(found.objectives)} value only")
    return found


def _weighted_totals(
    experience: Experience,
    ratio: RatioFunction,
    value: Callable[[Sample], Vector] = lambda sample: sample.r_t,
) -> tuple[float, float, float, float, float]:
    """Sums over transitions: Σ w, Σ w at initial states, Σ wcρ, Σ wcρ where an episode ended, Σ wcρ · value.

    w is how often a transition counts, and `value` is the reward unless told otherwise.
    """
    sums = np.zeros(5)
    for sample in experience.samples():
        weights = sample.weight * ratio.at(sample.x_tm1) * sample.rho_tm1
        sums += (
            sample.weight.sum(),
            float(sample.weight @ sample.is_initial_tm1),
            weights.sum(),
            float(weights @ sample.terminated_t),
            float(weights @ value(sample)),
        )
    count, starts, mass, ended, total = sums.tolist()
    return count, starts, mass, ended, total


def _expected_mass(estimand: Estimand, mass: float, ended: float) -> float:
    leaving = (1.0 - estimand.discount) * mass + estimand.discount * ended
    expected = mass if estimand.is_average else leaving
    if not expected > 0:
        raise InputError(
            f"the weights of the transitions sum to {expected:.3g}, so they cannot be normalized: the ratio was "
            "not found; use another ratio_method, a smaller discount or a ridge"
        )
    return expected
