"""Ours: in which data, for which networks and after how many updates the ratio pays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.experiments.comparison.design import Arm, Comparison
from covshift.experiments.comparison.results import LAST, Results, RunRecord
from covshift.experiments.comparison.verdicts import RULE, Scores, headline, judge, say_each
from covshift.experiments.conservatism import PRESET_WEIGHT
from covshift.report.contrasts import Contrast, compare

PLAIN, MATCHED = "no correction", "matched"
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    PLAIN: ("c51", {}),
    "paper": ("c51-corrected", {}),
    MATCHED: ("c51-matched", {}),
    "conservative": ("c51-conservative", {}),
    "matched, conservative": ("c51-matched", PRESET_WEIGHT),
}

_GOOD = "covshift.envs.players:breakout"
RANDOM, RARE, EVEN, GOOD = "random play", "5 % good play", "50 % good play", "good play"
NARROW, NARROWEST = "¼ of the width", "1/16 of the width"
CONDITIONS: dict[str, dict[str, Any]] = {
    RANDOM: {},
    # Good episodes are about ten times as long, so that these shares of episodes are about 5 % and 50 % of the transitions.
    RARE: {"behavior_policy": ("uniform", _GOOD), "behavior_shares": (0.995, 0.005)},
    EVEN: {
        "behavior_policy": ("uniform", _GOOD),
        "behavior_shares": (0.91, 0.09),
        "value_bound": 40.0,
    },
    GOOD: {"behavior_policy": (_GOOD,), "value_bound": 40.0},
    NARROW: {"width": 0.25},
    NARROWEST: {"width": 0.0625},
}
"""What differs from random play and the usual network; one thing at a time.

Good play has values at the end of C51's support, so that `VALUE_BOUNDS`' rule gives it a wider one.
"""

ALL_METHODS = (RANDOM, RARE)
"""Conditions in which every method is run; in the others the two that the rule compares."""

GAIN_COLUMNS = ["condition", "no correction", "matched", "gain", "P(matched is better)"]

LONG = "four times the updates"
LENGTHS = (15_000, 30_000, 60_000, 120_000, 240_000)
"""Updates after which the long runs are looked at, at the scale `small`."""

MORE = ((RARE, GOOD), (NARROWEST, RANDOM))
"""Pairs of conditions: the ratio should gain more in the first."""


def label_of(method: str, condition: str) -> str:
    """The name of an arm."""
    return f"{method}; {condition}"


def arms_in(condition: str, methods: Iterable[str] = (PLAIN, MATCHED)) -> list[Arm]:
    """Methods in a condition."""
    return [
        Arm(label_of(name, condition), METHODS[name][0], METHODS[name][1] | CONDITIONS[condition])
        for name in methods
    ]


def arms(long: int) -> tuple[Arm, ...]:
    """Methods and conditions, and the two methods that the rule compares in runs of `long` updates."""
    found = [
        arms_in(condition, METHODS) if condition in ALL_METHODS else arms_in(condition)
        for condition in CONDITIONS
    ]
    longer = [
        Arm(label_of(method, LONG), METHODS[method][0], {"num_updates": long})
        for method in (PLAIN, MATCHED)
    ]
    return tuple(arm for group in (*found, longer) for arm in group)


BREAKOUT = ("MinAtar/Breakout-v1",)

EXPERIMENT = Comparison(
    name="where_it_pays",
    aliases=(),
    title="Where the correction pays",
    claim=(
        "The matched ratio gains more where good play is rare in the data than where the data are good play, and more with "
        "a network of a sixteenth of the width than with the usual one."
    ),
    paper=(
        "The paper says that a correction matters where the approximation cannot be right everywhere, and learns from "
        "random play alone. If the data are what the policy would do, c is 1 and there is nothing to gain; if the network can "
        "be right everywhere, the law of the updates does not matter in the end. So the gain should fall as the share of "
        "good play grows (5 %, 50 %, 100 %), grow as the network gets narrower, and shrink as runs get longer."
    ),
    games={"small": BREAKOUT, "smoke": BREAKOUT},
    arms={"small": arms(LENGTHS[-1]), "smoke": arms(200)},
    seeds={"small": 5, "smoke": 1},
    rule=RULE
    + "The gain of a seed is its score with the matched ratio over its score without a correction, from the same dataset. The "
    "claim holds if gains from data with 5 % of good play are larger than gains from good play alone, and gains with a "
    "sixteenth of the width are larger than gains with the usual width. It does not hold if one of these is smaller. Levels "
    "between these, and the length, are shown and not judged. This is a screening: a condition in which the matched ratio and no "
    "correction differ with p below 0.1 is run again by new_seeds, with ten new seeds.",
    analyze=lambda results: analyze(results),
    differences=(
        "Good play is a player written by hand (`covshift.envs.players:breakout`, 2 % random actions, a score of 8), mixed "
        "with random play by episodes. Shares of transitions vary with the data seed: with seed 0 the column `policy` has 3.2 % and 49 %.",
        "Where half or all of the transitions are good play, the atoms end at ±40 in place of ±10: with ±10 values reach the "
        "end of the support there.",
        "The study is on Breakout alone, and the paper's agent and the conservative ones are run with random play and with 5 % "
        "of good play only: all methods in all conditions would take about twice as long.",
    ),
)


def gains(scores: Scores, condition: str) -> NDArray[np.float64]:
    """For each seed m/(m + p), which grows with m/p: m with the matched ratio, p without; ½ where both are 0."""
    plain, matched = (scores[label_of(method, condition)] for method in (PLAIN, MATCHED))
    total = matched + plain
    return np.where(total > 0, matched, 0.5) / np.where(total > 0, total, 1.0)


def contrasts(scores: Scores) -> dict[str, Contrast]:
    """Whether the gains of the first condition of each pair are larger."""
    return {
        f"{more} against {less}": compare(gains(scores, more), gains(scores, less))
        for more, less in MORE
    }


def verdict(scores: Scores) -> str:
    """The rule above."""
    found = list(contrasts(scores).values())
    return judge(found, len(scores[label_of(PLAIN, RANDOM)]))


def score_at(run: RunRecord, update: int) -> float:
    """The mean of the last evaluations up to an update."""
    curve = run.curve("score")
    return float(np.mean(np.asarray(curve.y)[np.asarray(curve.x) <= update][-LAST:]))


def analyze(results: Results) -> dict[str, Any]:
    """The gain in each condition, and at each length."""
    (game,) = results.games
    scores = results.all_scores()
    rows = [gain_row(condition, scores) for condition in CONDITIONS]
    long = {method: results.of(game, label_of(method, LONG)) for method in (PLAIN, MATCHED)}
    last = min(int(run.curve("score").x[-1]) for runs in long.values() for run in runs)
    for update in (length for length in LENGTHS if length <= last):
        condition = f"{update:,} updates of random play"
        ends = {
            label_of(method, condition): np.array([[score_at(run, update)] for run in runs])
            for method, runs in long.items()
        }
        rows.append(gain_row(condition, ends))
    others = [
        f"{method}, {condition}: {scores[label_of(method, condition)].mean():.2f}"
        for condition in ALL_METHODS
        for method in METHODS
        if method not in (PLAIN, MATCHED)
    ]
    found = contrasts(scores)
    best = max(CONDITIONS, key=lambda name: gains(scores, name).mean())
    return {
        "verdict": verdict(scores),
        "found": f"Probability that the gain is larger: {say_each(found)}. The gain is largest with {best}. Mean scores of "
        f"the other methods: {'; '.join(others)}.",
        "headline": headline(found[next(iter(found))], "P(the gain is larger)", next(iter(found))),
        "table": {"columns": GAIN_COLUMNS, "rows": rows},
        "panels": condition_panels(results, (*CONDITIONS, LONG)),
    }


def gain_row(condition: str, scores: Scores) -> list[str]:
    """What the matched ratio gains in a condition."""
    plain, matched = (scores[label_of(method, condition)] for method in (PLAIN, MATCHED))
    better = compare(matched, plain)
    gain = f"{matched.mean() / plain.mean():.2f}" if plain.any() else "–"
    return [
        *(condition, f"{plain.mean():.2f}", f"{matched.mean():.2f}", gain),
        f"{better.value:.2f} (p = {better.p:.2g})",
    ]


def condition_panels(results: Results, conditions: Iterable[str]) -> list[dict[str, Any]]:
    """The learning curves of each condition, with a method's name for its arm: it has the same color in all of them."""
    (game,) = results.games
    found = []
    for condition in conditions:
        ending = f"; {condition}"
        labels = [arm.label for arm in results.arms if arm.label.endswith(ending)]
        panel = results.score_panel(game, labels)
        curves = [arm | {"label": arm["label"].removesuffix(ending)} for arm in panel["arms"]]
        found.append(panel | {"title": condition, "arms": curves})
    return found
