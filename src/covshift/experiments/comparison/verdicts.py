"""Verdicts and the words for numbers that all analyses share; plain functions of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from covshift.report.contrasts import Contrast, compare, trimmed_estimate
from covshift.report.statistics import Estimate

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not enough data"

FEWEST_SEEDS = 3
"""With fewer seeds no verdict is given."""

ERROR = 0.05
"""Largest probability of a wrong verdict if the methods do not differ: half of it for `holds`, half for `does not hold`."""

RULE = (
    "The final score of a run is the mean of its last 3 evaluations. Arms are compared by P(arm > baseline), the "
    "probability of improvement over pairs of seeds and games, with an exact permutation test within each game. Better "
    "and worse mean a one-sided p-value of at most 2.5 %; where one of several comparisons is enough, the 2.5 % are "
    "divided by their number. With fewer than three seeds there is no verdict. "
)
"""How every rule about scores begins."""

MARGIN = 1.1
"""No more means less than this multiple of the preset's score."""

SETTINGS_RULE = (
    "The claim does not hold if one of the other settings is better than the preset. It holds if every one of them is worse "
    "than 110 % of the preset. "
)
"""The rule of `judge_settings`."""

Scores = Mapping[str, NDArray[np.float64]]
"""By the label of the arm: seeds × games."""


def all_shown(p_values: Iterable[float]) -> bool:
    """Whether every comparison is significant; since all must be, none needs a correction."""
    return all(p <= ERROR / 2 + _ROUNDING for p in p_values)


def any_shown(p_values: Iterable[float]) -> bool:
    """Whether one of several comparisons is significant, after Bonferroni's correction.

    Example:
        >>> any_shown([0.02, 0.5]), any_shown([0.0125, 0.5])
        (False, True)
    """
    found = list(p_values)
    return min(found) <= ERROR / 2 / len(found) + _ROUNDING


def decide(seeds: int, *, holds: bool, fails: bool) -> str:
    """The verdict of a rule; what refutes a claim outweighs what supports a part of it."""
    if seeds < FEWEST_SEEDS:
        return UNDECIDED
    return FAILS if fails else HOLDS if holds else UNDECIDED


def judge(contrasts: Sequence[Contrast], seeds: int) -> str:
    """Holds if every comparison is better, does not hold if one is worse.

    Args:
        contrasts: of an arm with each of its baselines.
        seeds: runs of each arm.

    Example:
        >>> from covshift.report.contrasts import Contrast, compare
        >>> judge([Contrast(0.9, 0.01, 0.99), Contrast(0.8, 0.02, 0.98)], seeds=5)
        'holds'
    """
    return decide(
        seeds,
        holds=all_shown(contrast.better for contrast in contrasts),
        fails=any_shown(contrast.worse for contrast in contrasts),
    )


def judge_signs(values: Iterable[NDArray[np.float64]], *, trim: bool) -> str:
    """Holds if every mean over runs is above 0, does not hold if one is below, by Student's intervals.

    Args:
        values: one number per run, for each condition.
        trim: interquartile means in place of means.

    Example:
        >>> judge_signs([np.array([1.0, 1.1, 1.2]), np.array([2.0, 2.1, 2.2])], trim=False)
        'holds'
    """
    found = list(values)
    single = [trimmed_estimate(each, 1 - ERROR, trim=trim) for each in found]
    several = [trimmed_estimate(each, 1 - ERROR / len(found), trim=trim) for each in found]
    return decide(
        min(len(each) for each in found),
        holds=all(estimate.low > 0 for estimate in single),
        fails=any(estimate.high < 0 for estimate in several),
    )


def judge_settings(scores: Scores, preset: str, others: Iterable[str]) -> str:
    """Whether no other setting scores more than the preset's, by `SETTINGS_RULE`.

    Args:
        scores: of every arm.
        preset: label of the arm with the preset's setting.
        others: labels of the arms with another one.

    Example:
        >>> usual, less = np.arange(10.0, 15.0)[:, None], np.arange(5.0)[:, None]
        >>> judge_settings({"preset": usual, "other": less}, "preset", ["other"])
        'holds'
    """
    labels = list(others)
    return decide(
        len(scores[preset]),
        holds=all_shown(compare(scores[label], MARGIN * scores[preset]).worse for label in labels),
        fails=any_shown(compare(scores[label], scores[preset]).better for label in labels),
    )


def weakest(better: Mapping[str, Contrast]) -> str:
    """The label of the least convincing comparison."""
    return max(better, key=lambda label: (better[label].better, -better[label].value))


def say(found: Contrast | Estimate) -> str:
    """The number with its interval, or with the two-sided p-value of a comparison.

    Example:
        >>> from covshift.report.statistics import Estimate
        >>> from covshift.report.contrasts import Contrast, compare
        >>> say(Estimate(0.9, 0.6, 1.0)), say(Contrast(0.9, 0.004, 0.997))
        ('0.90 (0.60 to 1.00)', '0.90 (p = 0.008)')
        >>> say(Estimate(0.9, float("-inf"), float("inf")))  # of one run
        '0.90'
    """
    if isinstance(found, Contrast):
        return f"{found.value:.2f} (p = {found.p:.2g})"
    if not np.isfinite([found.low, found.high]).all():
        return f"{found.value:.2f}"
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def say_number(value: float) -> str:
    """A number to three digits, with thin spaces in thousands and no exponent.

    Example:
        >>> say_number(44.38), say_number(1.1), say_number(0.0), "+".join(say_number(1012.0).split())
        ('44.4', '1.10', '0.00', '1+010')
    """
    short = float(f"{value:.3g}")
    text = f"{short:,.0f}" if abs(short) >= 100 else f"{short:#.3g}"
    return text.replace(",", "\u202f")


def say_each(found: Mapping[str, Contrast] | Mapping[str, Estimate]) -> str:
    """Every number with its interval or p-value, after its label."""
    return "; ".join(f"{label}: {say(each)}" for label, each in found.items())


def headline(value: Contrast | Estimate, what: str, of: str) -> dict[str, str]:
    """The number that decides the verdict, for the report's summary."""
    return {"value": say(value), "what": what, "of": of}


_ROUNDING = 1e-12
"""Exact p-values are sums: 1/40 must count as 2.5 %."""
