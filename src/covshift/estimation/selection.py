"""`estimator="auto"`: chooses estimator, features and γ̂ by cross-validation over trajectories."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.behavior import BehaviorLike
from covshift.estimation.estimand import Estimand
from covshift.estimation.estimators import ESTIMATORS, find_estimator
from covshift.estimation.experience import Experience
from covshift.estimation.features import (
    Affine,
    Features,
    FeaturesLike,
    RandomFourier,
    default_waves,
)
from covshift.estimation.importance import NEGLIGIBLE, lost_to_cuts
from covshift.estimation.inputs import Data
from covshift.estimation.policies import PolicyLike
from covshift.estimation.value_diagnostics import diagnose_value
from covshift.validation import Vector

SPLITS = 10
"""Random splits of the trajectories into two halves."""

ESTIMATORS_TRIED = ("dr", "mis-sn", "fqe", "wpdis")
RATIO_DISCOUNTS_TRIED = (1.0, 0.99, 0.9)
"""Values of γ̂ for the average reward; the discounted value has none."""


@final
@dataclass(frozen=True, eq=False)
class Trial:
    """One candidate.

    Attributes:
        estimator: a name in `ESTIMATORS`.
        features: which features of the states.
        ratio_discount: γ̂ of its ratio.
        loss: mean over splits of (estimate from one half - what the validator says from the other half)².
        excess: mean over splits of its loss - that of the first candidate.
        excess_error: standard error of the excess.
    """

    estimator: str
    features: str
    ratio_discount: float
    loss: float
    excess: float
    excess_error: float


@final
@dataclass(frozen=True, eq=False, repr=False)
class Selection:
    """What was compared, and what was chosen.

    Attributes:
        trials: all candidates that could answer; the first one is the default.
        chosen: the candidate that is used.
        validator: the estimator that the candidates are compared with.
    """

    trials: list[Trial]
    chosen: Trial
    validator: str

    def __repr__(self) -> str:
        lines = [
            f"{SPLITS} splits into halves; the error is that against {self.validator} of the other half"
        ]
        for trial in self.trials:
            mark = "chosen" if trial is self.chosen else ""
            lines.append(
                f"{trial.estimator:8} {trial.features:14} γ̂ = {trial.ratio_discount:<5g} root mean square error "
                f"{np.sqrt(trial.loss):<9.4g} {mark}".rstrip()
            )
        return "\n".join(lines)


def select(
    data: Data,
    policy: PolicyLike,
    estimand: Estimand,
    *,
    features: FeaturesLike = None,
    behavior: BehaviorLike = None,
    seed: int = 0,
) -> tuple[Experience, Estimand, Selection]:
    """Chooses among estimators, features and values of γ̂ by how well they predict other trajectories.

    In each of ten random splits every candidate estimates the value from one half of the trajectories, and a validator
    from the other half. The validator is `wpdis` where products of ρ leave enough trajectories and records are not cut off, since it assumes nothing about
    states, and `dr` elsewhere. The candidate with the smallest mean squared difference is chosen, but the default, which is
    `dr` on the default features, is kept unless the other is better by more than one standard error.

    A split is a weighting of the trajectories, so that no candidate reads the data more than once.

    Returns:
        The data with the chosen features, the estimand with the chosen γ̂, and what was compared.

    Reference: Cief, Kveton & Kompan, Cross-Validated Off-Policy Evaluation (2025), for bandits; Nadeau & Bengio, Inference for
    the Generalization Error (2003), for the standard error, in which halves count as much as one fresh draw.
    """
    found = candidates(data, policy, estimand, features=features, behavior=behavior)
    first = found[0].experience
    count = len(first.logs)
    if count < 4:
        raise InputError(f"{count} trajectories cannot be split for estimator='auto'; say dr")
    rng = np.random.default_rng(seed)
    order = np.array([rng.permutation(count) for _ in range(SPLITS)])
    half = (order < count // 2).astype(np.float64)
    validator = _validator(first, estimand)
    truths = _answers(first.batch(list(1.0 - half)), estimand, validator)
    # All candidates with the same features share the fits to each half.
    members = {id(c.experience): c.experience.batch(list(half)) for c in found}
    losses = [
        (_answers(members[id(c.experience)], c.estimand, c.estimator) - truths) ** 2 for c in found
    ]
    kept = [k for k, loss in enumerate(losses) if np.isfinite(loss).all()]
    if not kept:
        raise InputError("no candidate of estimator='auto' has an answer in every half of the data")
    base = losses[kept[0]]
    trials = [
        Trial(
            found[k].estimator,
            found[k].features,
            found[k].estimand.ratio_discount,
            float(losses[k].mean()),
            float((losses[k] - base).mean()),
            # Splits share trajectories, so the error of their mean is larger than 1/√10 of their deviation.
            float((losses[k] - base).std(ddof=1) * np.sqrt(1.0 / SPLITS + 1.0)),
        )
        for k in kept
    ]
    best = int(np.argmin([trial.loss for trial in trials]))
    if trials[best].excess + trials[best].excess_error >= 0.0:
        best = 0
    chosen = found[kept[best]]
    return chosen.experience, chosen.estimand, Selection(trials, trials[best], validator)


class Candidate(NamedTuple):
    """An estimator with its settings, on data with some features."""

    estimator: str
    features: str
    experience: Experience
    estimand: Estimand


def candidates(
    data: Data,
    policy: PolicyLike,
    estimand: Estimand,
    *,
    features: FeaturesLike = None,
    behavior: BehaviorLike = None,
) -> list[Candidate]:
    """What `select` compares, the default first."""
    kind = "default" if features is None else "given"
    first = Experience.of(data, policy, features=features, behavior=behavior)
    experiences = {kind: first}
    if features is None and not first.is_tabular:
        count, bandwidth = _wide(default_waves(first.logs))
        others: dict[str, Features] = {
            "wide waves": RandomFourier.fit(first.logs, count, np.random.default_rng(0), bandwidth),
            "affine": Affine.fit(first.logs),
        }
        experiences |= {name: first.with_features(made) for name, made in others.items()}
    return [
        Candidate(estimator, name, experience, asked)
        for name, experience in experiences.items()
        for estimator, asked in _settings(estimand)
        if experience is first or estimator != "wpdis"  # It uses no features.
    ]


def _settings(estimand: Estimand) -> Iterator[tuple[str, Estimand]]:
    """Estimators with their γ̂, the default first."""
    for name in ESTIMATORS_TRIED:
        if estimand.objective not in ESTIMATORS[name].objectives:
            continue
        uses_ratio = estimand.is_average and name != "fqe"
        discounts = RATIO_DISCOUNTS_TRIED if uses_ratio else (estimand.ratio_discount,)
        for ratio_discount in discounts:
            yield name, replace(estimand, ratio_discount=ratio_discount)


def _validator(experience: Experience, estimand: Estimand) -> str:
    if estimand.is_average or lost_to_cuts(experience, estimand) > NEGLIGIBLE:
        return "dr"
    return "wpdis" if diagnose_value(experience, estimand, "wpdis", 0.0).flag == "ok" else "dr"


def _answers(members: list[Experience], estimand: Estimand, name: str) -> Vector:
    """The estimates for each weighting of the trajectories; NaN where there is none."""
    estimate = find_estimator(name, estimand).estimate
    made = []
    with warnings.catch_warnings():
        # The chosen candidate gives its warnings for the whole data.
        warnings.simplefilter("ignore", UserWarning)
        for member in members:
            try:
                made.append(float(estimate(member, estimand)))
            except InputError:
                made.append(np.nan)
    return np.array(made)


def _wide(waves: RandomFourier) -> tuple[int, float]:
    """Half as many waves as by default, of a bandwidth that is 1.6 times as large."""
    entries, count = waves.omega.shape
    return max(1, count // 2), 0.8 * float(np.sqrt(entries))
