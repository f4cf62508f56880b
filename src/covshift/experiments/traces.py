"""Ours: n-step returns, Retrace, the ratio, and Retrace with the ratio."""

from __future__ import annotations

from typing import Any

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    headline,
    judge,
    say_each,
    weakest,
)
from covshift.report.contrasts import compare

BASELINE = "one step"
N_STEP, RETRACE, RATIO, BOTH = "3 steps", "Retrace", "ratio", "Retrace and ratio"
SOURCES = {"random play": False, "online": True}
"""Where the data come from, and whether the agent collects them itself."""

_TRACED = {"value_trace": "retrace"}


def label_of(method: str, source: str) -> str:
    """The name of an arm."""
    return f"{method}, {source}"


EXPERIMENT = Comparison(
    name="traces",
    aliases=(),
    title="Traces and the ratio",
    claim="Retrace with the ratio scores more than either alone, from random play and from the agent's own past.",
    paper=(
        "The paper wishes to combine the ratio, which corrects backwards, with corrections such as Retrace, which look ahead. "
        "B8 says that both together contract better where π is close to μ, and that they need not elsewhere."
    ),
    games=ONE_GAME,
    arms=every_scale(
        tuple(
            Arm(label_of(method, source), preset, leaves, online)
            for source, online in SOURCES.items()
            for method, preset, leaves in (
                (BASELINE, "c51", {}),
                (N_STEP, "c51", {"value_steps": 3}),
                (RETRACE, "c51", _TRACED),
                (RATIO, "c51-matched", {}),
                (BOTH, "c51-matched", _TRACED),
            )
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "The claim holds if, from each of the two sources of data, Retrace with the ratio is better than Retrace and better "
    "than the ratio, and does not hold if it is worse in one of these four comparisons. One step and 3 steps are shown and not "
    "judged.",
    analyze=lambda results: analyze(results),
    differences=(
        "Retrace bootstraps from the mean over π's actions, ε-greedy with ε = 0.1; the other arms from the greedy action, as "
        "C51 does.",
    ),
)


def judged() -> dict[str, tuple[str, str]]:
    """The comparisons that the rule names: an arm and its baseline, by what they are."""
    return {
        f"{alone}, {source}": (label_of(BOTH, source), label_of(alone, source))
        for source in SOURCES
        for alone in (RETRACE, RATIO)
    }


def verdict(scores: Scores) -> str:
    """The rule above."""
    contrasts = [compare(scores[both], scores[alone]) for both, alone in judged().values()]
    return judge(contrasts, len(next(iter(scores.values()))))


def analyze(results: Results) -> dict[str, Any]:
    """Learning curves from each source, and the four comparisons."""
    better = {what: results.improvement(*pair) for what, pair in judged().items()}
    worst = weakest(better)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that both together beat one alone: {say_each(better)}.",
        "headline": headline(better[worst], f"P(both beat {worst})", "Retrace and ratio"),
        "table": results.score_table(label_of(BASELINE, "random play")),
        "panels": [
            panel | {"title": f"{panel['title']}, {source}"}
            for game in results.games
            for source in SOURCES
            for panel in [results.score_panel(game, _labels(results, source))]
        ],
    }


def _labels(results: Results, source: str) -> list[str]:
    return [arm.label for arm in results.arms if arm.online == SOURCES[source]]
