"""Sums over weighted transitions from which ratio estimators and the doubly robust one are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from covshift.errors import InputError
from covshift.estimation.critic import Critic
from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.problem import RatioFunction
from covshift.estimation.sample import Sample
from covshift.validation import Dense

CriticFit: TypeAlias = Callable[[Experience, Estimand], Critic]

FOLDS = 5
"""Parts that the trajectories are divided into where fits and sums use different ones."""


class Totals(NamedTuple):
    """Sums over transitions, each of which counts w times.

    Attributes:
        transitions: Σ w.
        starts: Σ w at initial states.
        mass: Σ wcρ.
        ended: Σ wcρ where an episode ended.
        reward: Σ wcρ · r.
        error: Σ wcρ · (the error of a critic); 0 without one.
        fitted: Σ w V̂ at initial states, or Σ wcρ · ĝ for the average reward; 0 without a critic.
    """

    transitions: float
    starts: float
    mass: float
    ended: float
    reward: float
    error: float
    fitted: float

    def expected_mass(self, estimand: Estimand) -> float:
        """What the weights of the transitions should sum to, by which estimators are normalized.

        Average: Σ cρ. Discounted: the mass that leaves by discounting or by an episode's end is the mass that started.

        Raises:
            InputError: it is not positive.
        """
        leaving = (1.0 - estimand.discount) * self.mass + estimand.discount * self.ended
        expected = self.mass if estimand.is_average else leaving
        if not expected > 0:
            raise InputError(
                f"the weights of the transitions sum to {expected:.3g}, so they cannot be normalized: the ratio was "
                "not found; use another ratio_method, a smaller discount or a ridge"
            )
        return expected


def weighted_totals(
    experience: Experience, estimand: Estimand, fit: CriticFit | None = None
) -> Totals:
    """The sums for a fitted ratio and, if `fit` is given, the critic that it gives; one pass for a whole batch."""

    def of_batch(batch: list[Experience]) -> list[Totals | InputError]:
        made = [_attempt(member, estimand, fit) for member in batch]
        return _sum_up(batch, [made], np.ones((1, len(batch[0].logs))), estimand)

    return experience.together((Totals, repr(estimand), fit), of_batch)


def cross_fitted_totals(experience: Experience, estimand: Estimand, fit: CriticFit) -> Totals:
    """The same sums, in which each trajectory meets the ratio and the critic that were fitted to the other folds.

    A fit to other folds is a weighting that gives the trajectories of one fold 0.
    """

    def of_batch(batch: list[Experience]) -> list[Totals | InputError]:
        count = len(batch[0].logs)
        if count < FOLDS:
            raise InputError(f"{count} trajectories are too few for {FOLDS} folds; use dr")
        held_out = np.arange(count) % FOLDS == np.arange(FOLDS)[:, None]
        made = []
        for mask in held_out:
            others = [member.trajectory_weights * ~mask for member in batch]
            members = batch[0].origin.batch(others)
            made.append([_attempt(member, estimand, fit) for member in members])
        return _sum_up(batch, made, held_out.astype(np.float64), estimand)

    return experience.together(("cross-fitted", repr(estimand), fit), of_batch)


_Fit: TypeAlias = tuple[RatioFunction, Critic | None] | InputError


def _attempt(experience: Experience, estimand: Estimand, fit: CriticFit | None) -> _Fit:
    try:
        return estimand.ratio(experience), None if fit is None else fit(experience, estimand)
    except InputError as error:
        return error


def _sum_up(
    batch: list[Experience], made: list[list[_Fit]], masks: Dense, estimand: Estimand
) -> list[Totals | InputError]:
    """The sums of each member, in which the fits `made[k]` see the trajectories that `masks[k]` weighs."""
    sums = np.zeros((len(batch), len(Totals._fields)))
    for fits, mask in zip(made, masks, strict=True):
        for index, sample in _samples(batch, mask):
            if not isinstance(found := fits[index], InputError):
                sums[index] += _add_up(batch[index], sample, estimand, *found)
    failed = [
        next((fits[index] for fits in made if isinstance(fits[index], InputError)), None)
        for index in range(len(batch))
    ]
    return [
        why if isinstance(why, InputError) else Totals(*row)
        for why, row in zip(failed, sums.tolist(), strict=True)
    ]


def _samples(batch: list[Experience], mask: Dense) -> Iterator[tuple[int, Sample]]:
    """The weighted samples of every member of a batch; those on features are prepared once for all."""
    members = batch
    if not mask.all():
        members = batch[0].origin.batch([member.trajectory_weights * mask for member in batch])
    if batch[0].is_tabular:
        for index, member in enumerate(members):
            yield from ((index, sample) for sample in member.merged())
        return
    for sample in batch[0].samples():
        columns: list[Any] = [*sample]
        if not mask.all():
            kept = np.flatnonzero(mask[sample.trajectory])
            columns = [column[kept] for column in sample]
        some = Sample(*columns)
        yield from ((index, member.weigh(some)) for index, member in enumerate(members))


def _add_up(
    experience: Experience,
    sample: Sample,
    estimand: Estimand,
    ratio: RatioFunction,
    critic: Critic | None,
) -> tuple[float, ...]:
    weights = sample.weight * ratio.at(sample.x_tm1) * sample.rho_tm1
    error = fitted = 0.0
    if critic is not None:
        q_tm1, v_t = critic.values(experience, sample)
        discount = 1.0 if estimand.is_average else estimand.discount
        error = float(weights @ (sample.r_t - critic.gain + discount * v_t - q_tm1))
        if estimand.is_average:
            fitted = critic.gain * float(weights.sum())
        else:
            first = sample.is_initial_tm1
            v_0 = critic.state_values(experience, sample.x_tm1[first], sample.pi_tm1[first])
            fitted = float(sample.weight[first] @ v_0)
    return (
        float(sample.weight.sum()),
        float(sample.weight @ sample.is_initial_tm1),
        float(weights.sum()),
        float(weights @ sample.terminated_t),
        float(weights @ sample.r_t),
        error,
        fitted,
    )
