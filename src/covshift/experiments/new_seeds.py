"""Ours: the conditions that the screening `where_it_pays` pointed out, with seeds and datasets that nobody has seen."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import Comparison
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    headline,
    judge,
    say_each,
    weakest,
)
from covshift.experiments.where_it_pays import (
    BREAKOUT,
    GAIN_COLUMNS,
    GOOD,
    MATCHED,
    NARROW,
    PLAIN,
    RANDOM,
    arms_in,
    condition_panels,
    gain_row,
    label_of,
)
from covshift.report.contrasts import Contrast, compare

CONDITIONS = (RANDOM, GOOD, NARROW)
"""Where the five seeds of the screening have p below 0.1 between the matched ratio and no correction."""

ARMS = tuple(arm for condition in CONDITIONS for arm in arms_in(condition))

EXPERIMENT = Comparison(
    name="new_seeds",
    aliases=(),
    title="Where the correction pays, with new seeds",
    claim=(
        "In every condition that the screening pointed out, the matched ratio scores more than no correction with ten new "
        "seeds too."
    ),
    paper=(
        "A difference that was found by looking at many conditions may be chance. So the screening where_it_pays judges no "
        "single condition: those that it points out are run again."
    ),
    games={"small": BREAKOUT, "smoke": BREAKOUT},
    arms={"small": ARMS, "smoke": ARMS},
    seeds={"small": 10, "smoke": 1},
    first_seed=10,
    rule=RULE
    + "A condition is pointed out if the matched ratio and no correction differ there with p below 0.1 in the first five "
    "seeds. The claim holds if the matched ratio is better in every such condition, and does not hold if it is worse in one.",
    analyze=lambda results: analyze(results),
    differences=(
        "The study is on Breakout alone.",
        "The runs of random play with older seeds were known when the limit of 0.1 was stated.",
    ),
)


def contrasts(scores: Scores) -> dict[str, Contrast]:
    """The matched ratio against no correction, by condition."""
    return {
        condition: compare(scores[label_of(MATCHED, condition)], scores[label_of(PLAIN, condition)])
        for condition in CONDITIONS
    }


def verdict(scores: Scores) -> str:
    """The rule above."""
    return judge(list(contrasts(scores).values()), len(scores[ARMS[0].label]))


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves, and P(better than no correction) in each condition."""
    scores = results.all_scores()
    found = contrasts(scores)
    worst = weakest(found)
    return {
        "verdict": verdict(scores),
        "found": f"Probability that the matched ratio beats no correction: {say_each(found)}.",
        "headline": headline(found[worst], "P(better than no correction)", worst),
        "table": {"columns": GAIN_COLUMNS, "rows": [gain_row(name, scores) for name in CONDITIONS]},
        "panels": condition_panels(results, CONDITIONS),
    }
