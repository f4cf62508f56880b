"""What is run: variants of estimators, cells of the sweep, and scales, as data."""

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
    Domain,
    four_rooms_domain,
    garnet_domain,
    taxi_domain,
)
from covshift.experiments.estimation.games import breakout_domain, cart_pole_domain

DISTANCE = 0.5
"""Between μ (0) and π* (1) where it is not swept."""

LEVEL = 0.9
"""Of the intervals whose coverage is counted."""


@final
@dataclass(frozen=True)
class Variant:
    """An estimator, and how it estimates the ratio where it uses one."""

    title: str
    estimator: str
    ratio_method: str | None = None
    ratio_options: dict[str, Any] = field(default_factory=dict)
    table: bool | None = None
    """Whether it is for tables only (True) or for features only (False)."""


VARIANTS = (
    Variant("COP-TD", "mis-sn", "td", {"passes": 5}, table=True),
    Variant("COP-TD, n = 3", "mis-sn", "td", {"passes": 5, "num_steps": 3}, table=True),
    Variant("COP, least squares", "mis-sn", "least-squares"),
    Variant("COP, 1/c weights", "mis-sn", "least-squares", {"weighting": "inverse"}, table=False),
    Variant("COP, exact model", "mis-sn", "empirical", table=True),
    Variant("doubly robust", "dr"),
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
        sizes: transitions of the sweep over data.
        distances: of the sweep over policies, beside `DISTANCE`.
        ratio_discounts: γ̂ of the sweep over it.
        seeds: datasets for each cell.
        replicates: of the bootstrap.
        rollouts: from which the true value of a game is taken.
    """

    sizes: tuple[int, ...]
    distances: tuple[float, ...]
    ratio_discounts: tuple[float, ...]
    seeds: int
    replicates: int
    rollouts: int

    @property
    def middle(self) -> int:
        """Transitions where they are not swept."""
        return self.sizes[len(self.sizes) // 2]


SCALES = {
    "smoke": Scale((200, 600), (1.0,), (0.9, 1.0), 1, 3, 32),
    "small": Scale((500, 2_000, 8_000), (0.1, 0.25, 1.0), (0.5, 0.9, 0.99, 1.0), 6, 20, 3_000),
}  # fmt: skip


class Cell(NamedTuple):
    """One setting of one domain."""

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
    seconds: float
    failure: str

    @property
    def error(self) -> float:
        """|estimate - truth| over what is at stake, |J(π*) - J(μ)|."""
        return abs(self.value - self.truth) / self.stake


def domains(scale: Scale) -> list[Domain]:
    """All of them; MinAtar needs the extra `games`."""
    return [
        four_rooms_domain(),
        taxi_domain(),
        garnet_domain(),
        cart_pole_domain(scale.rollouts),
        breakout_domain(scale.rollouts),
    ]


def cells(scale: Scale) -> list[Cell]:
    """Sizes at the middle distance, distances at the middle size, and γ̂ for the average reward."""
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
    """Every variant on one dataset."""
    domain, average = cell.domain, cell.objective == "average"
    rng = np.random.default_rng([seed, cell.size, sum(domain.title.encode())])
    logs = domain.logs(cell.size, rng)
    experience = Experience.of(logs, domain.policy(cell.distance), features=domain.features(logs))
    truth = domain.truth(cell.distance, average=average)
    stake = abs(domain.truth(1.0, average=average) - domain.truth(0.0, average=average))
    for variant in VARIANTS:
        if variant.table is not None and variant.table != experience.is_tabular:
            continue
        if cell.sweep == "ratio_discount" and variant.estimator not in (
            "mis-sn",
            "dr",
            "fqe",
            "behavior",
        ):
            continue  # the others know no γ̂
        estimand = Estimand(
            cell.objective,
            domain.discount,
            cell.ratio_discount,
            variant.ratio_method,
            variant.ratio_options,
            ridge=1e-4,
        )
        value = low = high = float("nan")
        failure, started = "", time.perf_counter()
        try:
            with warnings.catch_warnings():
                # Cut records and few trajectories are what the study is about.
                warnings.simplefilter("ignore", UserWarning)
                found = evaluate_experience(
                    experience, estimand, variant.estimator, None, scale.replicates, seed
                )
                seconds = found.seconds
                spread = evaluate_experience(
                    experience, estimand, variant.estimator, LEVEL, scale.replicates, seed
                )
            value, low, high = found.value, spread.low, spread.high
        except InputError as error:
            failure, seconds = str(error), time.perf_counter() - started
        yield Row(
            cell.sweep, domain.title, cell.objective, cell.size, cell.distance, cell.ratio_discount,
            seed, variant.title, value, truth, stake, low, high, seconds, failure,
        )  # fmt: skip
