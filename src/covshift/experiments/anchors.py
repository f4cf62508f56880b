"""Ours: the matched ratio beside what a user would take instead, on the axis of published scores from random play."""

from __future__ import annotations

from typing import Any

import numpy as np

from covshift.experiments.comparison.design import Arm, Comparison
from covshift.experiments.comparison.results import Results, interval_of
from covshift.experiments.comparison.verdicts import (
    RULE,
    Scores,
    headline,
    judge,
    say_each,
    weakest,
)
from covshift.experiments.conservatism import ANCHORED, PRESET_WEIGHT
from covshift.experiments.online_control import PUBLISHED as ONLINE
from covshift.report.contrasts import compare

PLAIN, CONSERVATIVE, BEHAVIOR = "no correction", "conservative", "behavior values"
MATCHED = "matched"
INSTEAD = (CONSERVATIVE, BEHAVIOR)
"""What a user would take instead of the ratio."""

WITH_RATIO = {PLAIN: MATCHED} | {label: f"{label}, matched" for label in INSTEAD}
"""Each method, and the same with the matched ratio."""

PUBLISHED: dict[str, dict[str, float]] = {
    "MinAtar/Breakout-v1": {
        "BC": 2,
        "DQN": 17,
        "QR-DQN": 19,
        "REM": 21,
        "CRR": 28,
        "CQL": 33,
        "BVE": 33,
        "MCE": 33,
    },
    "MinAtar/SpaceInvaders-v1": {"DQN": 115, "CQL": 118},
}
"""Offline scores from uniformly random data, in % of online DQN above random play, from Schweighofer et al. (2021)."""

DRAWN = ("DQN", "CQL")
"""The published methods that have a line in every game's panel; the table has all."""

ARMS = (
    Arm(PLAIN, "c51"),
    Arm(CONSERVATIVE, "c51-conservative"),
    Arm(BEHAVIOR, "c51-behavior"),
    Arm(MATCHED, "c51-matched"),
    Arm(WITH_RATIO[CONSERVATIVE], "c51-matched", PRESET_WEIGHT),
    Arm(WITH_RATIO[BEHAVIOR], "c51-matched", {"bootstrap_action": "data"}),
)

EXPERIMENT = Comparison(
    name="anchors",
    aliases=(),
    title="What a user would take instead",
    claim=(
        "From random play the matched ratio scores more than conservative Q-learning and more than values of the behavior "
        "policy."
    ),
    paper=(
        "The paper compares with uncorrected C51 and with TD-error priorities. Schweighofer et al. (2021) publish what "
        "methods of offline learning reach on MinAtar from uniformly random data: an anchor from outside."
    ),
    games={"small": ANCHORED, "smoke": ANCHORED[:1]},
    arms={"small": ARMS, "smoke": ARMS},
    seeds={"small": 5, "smoke": 1},
    rule=RULE
    + "The claim holds if the matched ratio is better over both games than the conservative agent and than the agent of "
    "behavior values, and does not hold if it is worse than one of them. What the ratio adds to each method, and published "
    "scores, are shown and not judged.",
    analyze=lambda results: analyze(results),
    differences=(
        "100 % on the axis is the published score of online DQN after 5 million frames (Young & Tian, 2019: 10 in Breakout, "
        "45 in Space Invaders), and 0 % is random play in our data. The published shares are relative to an online DQN of "
        "Schweighofer et al.; our two numbers are not theirs.",
        "Published scores are from MinAtar's six actions; our games have those actions that do something in them.",
        "Published scores are from 2 million transitions and 10 million updates of 128 transitions; ours are from 300 000 "
        "transitions and 60 000 updates of 32.",
        "Published scores are of other networks and losses; all of ours are C51.",
    ),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    contrasts = [compare(scores[MATCHED], scores[other]) for other in INSTEAD]
    return judge(contrasts, len(scores[PLAIN]))


def share_of_online(score: Any, random: float, online: float) -> Any:
    """A score in % of what an online agent has above random play.

    Example:
        >>> share_of_online(5.5, random=1.0, online=10.0)
        50.0
    """
    return 100.0 * (score - random) / (online - random)


def analyze(results: Results) -> dict[str, Any]:
    """Scores as shares of an online agent's, with published ones as lines and rows."""
    better = {other: results.improvement(MATCHED, other) for other in INSTEAD}
    added = {f"to {alone}": results.improvement(both, alone) for alone, both in WITH_RATIO.items()}
    worst = weakest(better)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that the matched ratio beats, over all games: {say_each(better)}. Probability that the ratio "
        f"adds something {say_each(added)}.",
        "headline": headline(better[worst], f"P(better than {worst}), all games", MATCHED),
        "table": _table(results),
        "panels": [_anchored(results, game) for game in results.games],
    }


def _table(results: Results) -> dict[str, Any]:
    rows = []
    for game in results.games:
        random, online = results.random_play(game), ONLINE[game]
        for arm in results.arms:
            score, *ends = interval_of(results.endings(game, arm.label, "score"))
            share, low, high = (share_of_online(x, random, online) for x in (score, *ends))
            span = "" if low == high else f"{low:.0f} to {high:.0f}"
            rows.append([game, arm.label, "ours", f"{score:.2f}", f"{share:.0f}", span])
        rows += [
            [game, label, "published", "", f"{share:.0f}", ""]
            for label, share in PUBLISHED[game].items()
        ]
    columns = ["game", "method", "from", "IQM score", "% of online DQN", "95 % interval"]
    return {"columns": columns, "rows": rows}


def _anchored(results: Results, game: str) -> dict[str, Any]:
    """The learning curves in % of an online agent, with published shares as lines."""
    random, online = results.random_play(game), ONLINE[game]

    def shared(curve: dict[str, Any]) -> dict[str, Any]:
        names = {"y", "middle", "low", "high"} & set(curve)
        shares = {
            name: share_of_online(np.array(curve[name]), random, online).tolist() for name in names
        }
        return curve | shares

    panel = results.panel(game, "score", "% of online DQN")
    arms = [shared(arm) | {"runs": [shared(run) for run in arm["runs"]]} for arm in panel["arms"]]
    lines = [{"label": f"{label}, published", "y": PUBLISHED[game][label]} for label in DRAWN]
    return panel | {"arms": arms, "lines": [{"label": "random policy", "y": 0.0}, *lines]}
