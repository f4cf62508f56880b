"""What the study runs: estimators, settings and scales as data, and how one setting is run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from covshift.errors import InputError
from covshift.estimation.estimand import Estimand, Objective
from covshift.estimation.experience import Experience
from covshift.estimation.values import evaluate_experience
from covshift.experiments.estimation.domains import (
    FiniteDomain,
    four_rooms_domain,
    garnet_domain,
    taxi_domain,
)
from covshift.experiments.estimation.games import GameDomain, breakout_domain, cart_pole_domain

Domain = FiniteDomain | GameDomain
"""A problem with data from a behavior policy μ, and target policies at any distance from it, up to π*."""

DISTANCE = 0.5
"""Of π from μ (0) towards π* (1), in the sweeps over other things."""

SHOWN_BY_RATIO_DISCOUNT = ("mis-sn", "dr", "fqe", "behavior")
"""Estimators in the sweep over γ̂; the others do not depend on it."""

LEVEL = 0.9
"""Nominal coverage of the intervals."""


@final
@dataclass(frozen=True)
class Variant:
    """An estimator, and how it estimates the ratio if it uses one.

    Args:
        estimator: a key of `covshift.estimation.ESTIMATORS`.
        ratio_method: how the ratio is estimated, with `ratio_options`.
        table: True if it works on tables only, False if it needs features, None if it takes either.
    """

    title: str
    estimator: str
    ratio_method: str | None = None
    ratio_options: dict[str, Any] = field(default_factory=dict)
    table: bool | None = None

    def answers(self, cell: Cell, *, is_tabular: bool) -> bool:
        """Whether it can be run in a cell."""
        if self.table not in (None, is_tabular):
            return False
        return cell.sweep != "ratio_discount" or self.estimator in SHOWN_BY_RATIO_DISCOUNT


VARIANTS = (
    Variant("COP-TD", "mis-sn", "td", {"passes": 5}, table=True),
    Variant("COP-TD, n = 3", "mis-sn", "td", {"passes": 5, "num_steps": 3}, table=True),
    Variant("COP, least squares", "mis-sn", "least-squares"),
    Variant("COP, 1/c weights", "mis-sn", "least-squares", {"weighting": "inverse"}, table=False),
    Variant("COP, matching loss", "mis-sn", "matching"),
    Variant("COP, exact model", "mis-sn", "empirical", table=True),
    Variant("doubly robust", "dr"),
    Variant("doubly robust, cross-fitted", "dr-cf"),
    Variant("fitted Q", "fqe"),
    Variant("per-decision IS", "pdis"),
    Variant("weighted per-decision IS", "wpdis"),
    Variant("DualDICE", "dualdice"),
    Variant("GenDICE", "gendice"),
    Variant("GradientDICE", "gradientdice"),
    Variant("MWL", "mwl"),
    Variant("behavior policy", "behavior"),
)


@final
@dataclass(frozen=True)
class Scale:
    """How much is run.

    Args:
        sizes: transitions in the sweep over the amount of data.
        distances: distances in the sweep over policies, beside `DISTANCE`.
        ratio_discounts: values of γ̂ in the sweep over it.
        seeds: datasets per cell.
        replicates: bootstrap replicates per interval.
        rollouts: episodes whose mean return is the true value of a game.
        convergence_sizes: transitions in the figure of convergence.
        convergence_seeds: datasets for each of these sizes.
    """

    sizes: tuple[int, ...]
    distances: tuple[float, ...]
    ratio_discounts: tuple[float, ...]
    seeds: int
    replicates: int
    rollouts: int
    convergence_sizes: tuple[int, ...]
    convergence_seeds: int

    @property
    def middle(self) -> int:
        """Transitions in the sweeps over other things."""
        return self.sizes[len(self.sizes) // 2]


SCALES = {
    "small": Scale(
        sizes=(500, 2_000, 8_000),
        distances=(0.1, 0.25, 1.0),
        ratio_discounts=(0.5, 0.9, 0.99, 1.0),
        seeds=6,
        replicates=20,
        rollouts=3_000,
        convergence_sizes=(100, 1_000, 10_000, 100_000),
        convergence_seeds=10,
    ),
    "smoke": Scale(
        sizes=(200, 600),
        distances=(1.0,),
        ratio_discounts=(0.9, 1.0),
        seeds=1,
        replicates=3,
        rollouts=32,
        convergence_sizes=(100, 1_000),
        convergence_seeds=3,
    ),
}


class Cell(NamedTuple):
    """One setting in one domain."""

    sweep: str
    domain: Domain
    objective: Objective
    size: int
    distance: float
    ratio_discount: float


class Row(NamedTuple):
    """One estimate."""

    sweep: str
    domain: str
    objective: str
    transitions: int
    distance: float
    ratio_discount: float
    seed: int
    variant: str
    value: float
    truth: float
    stake: float
    low: float
    high: float
    flag: str
    seconds: float
    failure: str

    @property
    def error(self) -> float:
        """|estimate - truth| divided by what is at stake, |J(π*) - J(μ)|."""
        return abs(self.value - self.truth) / self.stake


def domains(scale: Scale) -> list[Domain]:
    """All five domains; MinAtar needs the extra `games`."""
    return [
        four_rooms_domain(),
        taxi_domain(),
        garnet_domain(),
        cart_pole_domain(scale.rollouts),
        breakout_domain(scale.rollouts),
    ]


def cells(scale: Scale) -> list[Cell]:
    """Sizes at the middle distance, distances at the middle size, and values of γ̂ for the average reward."""
    size = scale.middle
    made = []
    for domain in domains(scale):
        made += [Cell("size", domain, "discounted", n, DISTANCE, 1.0) for n in scale.sizes]
        made += [Cell("distance", domain, "discounted", size, d, 1.0) for d in scale.distances]
        if domain.has_average:
            made += [
                Cell("ratio_discount", domain, "average", size, DISTANCE, g)
                for g in scale.ratio_discounts
            ]
    return made


def run_cell(cell: Cell, scale: Scale, seed: int) -> Iterator[Row]:
    """The estimates of all variants from one dataset."""
    domain, average = cell.domain, cell.objective == "average"
    rng = np.random.default_rng([seed, cell.size, sum(domain.title.encode())])
    logs = domain.logs(cell.size, rng)
    experience = Experience.of(logs, domain.policy(cell.distance), features=domain.features(logs))
    truth = domain.truth(cell.distance, average=average)
    stake = abs(domain.truth(1.0, average=average) - domain.truth(0.0, average=average))
    for variant in VARIANTS:
        if not variant.answers(cell, is_tabular=experience.is_tabular):
            continue
        estimand = Estimand(
            cell.objective,
            domain.discount,
            cell.ratio_discount,
            variant.ratio_method,
            variant.ratio_options,
            ridge=1e-4,
        )
        value = low = high = float("nan")
        flag, failure, started = "", "", time.perf_counter()
        try:
            with warnings.catch_warnings():
                # The study is about cut records and few trajectories, so these are no news.
                warnings.simplefilter("ignore", UserWarning)
                found = evaluate_experience(
                    experience, estimand, variant.estimator, None, held_out=0.0
                )
                seconds = found.seconds
                spread = evaluate_experience(
                    experience, estimand, variant.estimator, LEVEL, scale.replicates, seed
                )
            value, low, high, flag = found.value, spread.low, spread.high, spread.flag
        except InputError as error:
            failure, seconds = str(error), time.perf_counter() - started
        yield Row(
            cell.sweep, domain.title, cell.objective, cell.size, cell.distance, cell.ratio_discount,
            seed, variant.title, value, truth, stake, low, high, flag, seconds, failure,
        )  # fmt: skip
