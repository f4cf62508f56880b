"""Estimators of a policy's value: each maps data and an estimand to a number.

Each one sums over weighted trajectories, so that a bootstrap replicate is another weighting.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.critic import Critic, fit_critic
from covshift.estimation.dice import dual_dice, gen_dice, gradient_dice, minimax_weights
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.experience import Experience
from covshift.estimation.importance import (
    from_starts,
    logged_returns,
    per_decision,
    warn_of_cuts,
    weighted,
    weighted_per_decision,
)
from covshift.estimation.problem import RatioFunction
from covshift.estimation.sample import Sample

Estimate: TypeAlias = Callable[[Experience, Estimand], float]
CriticFit: TypeAlias = Callable[[Experience, Estimand], Critic]


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
    sums = _weighted_totals(experience, estimand)
    return sums.total / (sums.transitions if estimand.is_average else sums.starts)


def self_normalized(experience: Experience, estimand: Estimand) -> float:
    """The sum of `marginalized`, divided by what its weights should sum to.

    Average: Σ cρ r / Σ cρ. Discounted: Σ cρ r / [(1 - γ) Σ cρ + γ Σ_ended cρ], since the mass that leaves by
    discounting or by an episode's end is the mass that started, 1 per initial state.
    """
    sums = _weighted_totals(experience, estimand)
    return sums.total / _expected_mass(estimand, sums)


def doubly_robust(experience: Experience, estimand: Estimand) -> float:
    """A fitted Q, whose errors are corrected with the ratio.

    Discounted: E_{d₀}[V̂] + 1/N₀ Σ cρ (r + γV̂(s') - Q̂(s, a)). Average: ĝ + 1/N Σ cρ (r - ĝ + V̂(s') - Q̂(s, a)).
    It is consistent if either the ratio or the fit is. The correction is self-normalized.
    """
    critic = fit_critic(experience, estimand)
    sums = _weighted_totals(experience, estimand, fit_critic)
    return critic.value + sums.total / _expected_mass(estimand, sums)


def fitted_q(experience: Experience, estimand: Estimand) -> float:
    """Fitted Q evaluation at its fixed point: E_{d₀}[V̂], or the gain ĝ of the average reward."""
    return fit_critic(experience, estimand).value


def behavior_value(experience: Experience, estimand: Estimand) -> float:
    """The value of the behavior policy μ in the data, to compare a new policy with."""
    logs, weight = experience.logs, experience.trajectory_weights
    returns = logged_returns(experience, estimand)
    if estimand.is_average:
        return float(weight @ returns / (weight @ logs.lengths))
    warn_of_cuts(experience, estimand)
    started = weight * from_starts(logs)
    return float(started @ returns / started.sum())


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


class _Totals(NamedTuple):
    """Sums over transitions, each of which counts w times.

    Attributes:
        transitions: Σ w.
        starts: Σ w at initial states.
        mass: Σ wcρ.
        ended: Σ wcρ where an episode ended.
        total: Σ wcρ · value.
    """

    transitions: float
    starts: float
    mass: float
    ended: float
    total: float


def _weighted_totals(
    experience: Experience, estimand: Estimand, fit: CriticFit | None = None
) -> _Totals:
    """The sums whose value is the reward, or the error of a critic that `fit` gives; one pass for a whole batch."""

    def of_batch(batch: list[Experience]) -> list[_Totals | InputError]:
        made = [_attempt(member, estimand, fit) for member in batch]
        sums = np.zeros((len(batch), 5))
        for index, sample in _samples(batch):
            if not isinstance(found := made[index], InputError):
                sums[index] += _add_up(batch[index], sample, estimand, *found)
        return [
            found if isinstance(found, InputError) else _Totals(*row)
            for found, row in zip(made, sums.tolist(), strict=True)
        ]

    return experience.together((_Totals, repr(estimand), fit), of_batch)


def _attempt(
    experience: Experience, estimand: Estimand, fit: CriticFit | None
) -> tuple[RatioFunction, Critic | None] | InputError:
    try:
        return estimand.ratio(experience), None if fit is None else fit(experience, estimand)
    except InputError as error:
        return error


def _samples(batch: list[Experience]) -> Iterator[tuple[int, Sample]]:
    """The weighted samples of every member of a batch; those on features are prepared once for all."""
    if batch[0].is_tabular:
        for index, member in enumerate(batch):
            yield from ((index, sample) for sample in member.merged())
        return
    for sample in batch[0].samples():
        yield from ((index, member.weigh(sample)) for index, member in enumerate(batch))


def _add_up(
    experience: Experience,
    sample: Sample,
    estimand: Estimand,
    ratio: RatioFunction,
    critic: Critic | None,
) -> tuple[float, ...]:
    value = sample.r_t
    if critic is not None:
        q_tm1, v_t = critic.values(experience, sample)
        discount = 1.0 if estimand.is_average else estimand.discount
        value = np.asarray(sample.r_t - critic.gain + discount * v_t - q_tm1)
    weights = sample.weight * ratio.at(sample.x_tm1) * sample.rho_tm1
    return (
        float(sample.weight.sum()),
        float(sample.weight @ sample.is_initial_tm1),
        float(weights.sum()),
        float(weights @ sample.terminated_t),
        float(weights @ value),
    )


def _expected_mass(estimand: Estimand, sums: _Totals) -> float:
    leaving = (1.0 - estimand.discount) * sums.mass + estimand.discount * sums.ended
    expected = sums.mass if estimand.is_average else leaving
    if not expected > 0:
        raise InputError(
            f"the weights of the transitions sum to {expected:.3g}, so they cannot be normalized: the ratio was "
            "not found; use another ratio_method, a smaller discount or a ridge"
        )
    return expected
