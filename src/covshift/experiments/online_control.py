"""Ours: the standard control setting, in which the agent's own past fills the replay."""

from __future__ import annotations

from typing import Any

from covshift.config.training import UPDATE_STEPS
from covshift.experiments.comparison.design import ALL_GAMES, Arm, Comparison, every_scale
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

BASELINE = "uniform"
TD_ERROR = "TD error"
PAPERS = "the paper's ratio"
MATCHED = "matched ratio"

PUBLISHED = {
    "MinAtar/Asterix-v1": 17.0,
    "MinAtar/Breakout-v1": 10.0,
    "MinAtar/SpaceInvaders-v1": 45.0,
}
"""Scores of DQN after 5 million frames, from Young & Tian (2019)."""

EXPERIMENT = Comparison(
    name="online_control",
    aliases=(),
    title="The agent's own past",
    claim=(
        "Where the agent's own past fills the replay, drawing it by the matched ratio scores more than drawing uniformly and "
        "more than drawing by TD error."
    ),
    paper=(
        "The paper learns from random play, and wishes for the standard control setting. There the replay is closer to "
        "what the agent does now, so that there is less to correct."
    ),
    games=ALL_GAMES,
    arms=every_scale(
        (
            Arm(BASELINE, "c51", online=True),
            Arm(TD_ERROR, "c51-td-priority", online=True),
            Arm(PAPERS, "c51-corrected", online=True),
            Arm(MATCHED, "c51-matched", online=True),
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=RULE
    + "The claim holds if the matched ratio is better over all games than both uniform draws and draws by TD error, and "
    "does not hold if it is worse than one of them. The paper's ratio is shown and not judged.",
    analyze=lambda results: analyze(results),
    differences=(
        "The agent acts with parameters of one to two shards ago (docs/agent.md), where DQN and C51 act with the newest.",
        "Published scores of DQN are after 5 million frames with an update every frame; the runs of the scale small see "
        "260 000 frames with an update every 4.",
    ),
)


def verdict(scores: Scores) -> str:
    """The rule above."""
    contrasts = [compare(scores[MATCHED], scores[other]) for other in (BASELINE, TD_ERROR)]
    return judge(contrasts, len(scores[BASELINE]))


def analyze(results: Results) -> dict[str, Any]:
    """Scores against frames, with published scores of DQN as lines."""
    better = {other: results.improvement(MATCHED, other) for other in (BASELINE, TD_ERROR, PAPERS)}
    judged = {label: better[label] for label in (BASELINE, TD_ERROR)}
    worst = weakest(judged)
    return {
        "verdict": verdict(results.all_scores()),
        "found": f"Probability that the matched ratio beats, over all games: {say_each(better)}.",
        "headline": headline(judged[worst], f"P(better than {worst}), all games", MATCHED),
        "table": results.score_table(BASELINE),
        "panels": [_against_frames(panel) for panel in results.score_panels()],
    }


def _against_frames(panel: dict[str, Any]) -> dict[str, Any]:
    """A panel over frames in place of updates, with DQN's published score."""
    arms = [
        arm | _in_frames(arm) | {"runs": [run | _in_frames(run) for run in arm["runs"]]}
        for arm in panel["arms"]
    ]
    lines = list(panel["lines"])
    if panel["title"] in PUBLISHED:
        lines.append({"label": "DQN after 5 M frames", "y": PUBLISHED[panel["title"]]})
    return panel | {"x": "frames after the warm-up", "arms": arms, "lines": lines}


def _in_frames(curve: dict[str, Any]) -> dict[str, Any]:
    return {"x": [UPDATE_STEPS * update for update in curve["x"]]}
