"""Verdicts and the words for numbers that all analyses share; plain functions of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from covshift.report.statistics import Estimate

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not enough data"

FEWEST_SEEDS = 3
"""With fewer seeds no verdict is given."""

RULE = (
    "The final score of a run is the mean of its last 3 evaluations. P(arm > baseline) is the probability of "
    "improvement over pairs of seeds, with a 95 % bootstrap interval over seeds, stratified by game. With fewer than "
    "three seeds there is no verdict. "
)
"""How every rule about scores begins."""


def decide(seeds: int, *, holds: bool, fails: bool) -> str:
    """The verdict of a rule whose two conditions exclude each other."""
    if seeds < FEWEST_SEEDS:
        return UNDECIDED
    return FAILS if fails else HOLDS if holds else UNDECIDED


def judge(estimates: Sequence[Estimate], seeds: int) -> str:
    """Holds if every interval is above ½, does not hold if one is below ½.

    Args:
        estimates: probabilities that an arm beats its baseline.
        seeds: runs of each arm.

    Example:
        >>> from covshift.report.statistics import Estimate
        >>> judge([Estimate(0.9, 0.6, 1.0), Estimate(0.8, 0.55, 1.0)], seeds=5)
        'holds'
    """
    return decide(
        seeds,
        holds=all(estimate.low > 0.5 for estimate in estimates),
        fails=any(estimate.high < 0.5 for estimate in estimates),
    )


def weakest(better: Mapping[str, Estimate]) -> str:
    """The label whose interval reaches lowest."""
    return min(better, key=lambda label: (better[label].low, better[label].value))


def say(estimate: Estimate) -> str:
    """The number with its interval.

    Example:
        >>> from covshift.report.statistics import Estimate
        >>> say(Estimate(0.9, 0.6, 1.0))
        '0.90 (0.60 to 1.00)'
    """
    return f"{estimate.value:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def say_each(estimates: Mapping[str, Estimate]) -> str:
    """Every number with its interval, after its label."""
    return "; ".join(f"{label}: {say(estimate)}" for label, estimate in estimates.items())


def headline(value: Estimate, what: str, of: str) -> dict[str, str]:
    """The number that decides the verdict, for the report's summary."""
    return {"value": say(value), "what": what, "of": of}
