"""Ours: what keeps the learned ratio's scale: its head, and what negative outputs count as in targets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.experiments.comparison.design import ONE_GAME, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results, interval_of, open_store
from covshift.experiments.comparison.verdicts import headline, judge_signs, say, say_each

if TYPE_CHECKING:
    from covshift.data.store import Store

BASELINE = "clipped (paper)"
UNCLIPPED = "not clipped"

EXPERIMENT = Comparison(
    name="ratio_scale",
    aliases=(),
    title="What keeps the ratio's scale",
    claim=(
        "Clipping negative ratios in targets raises E_μ[c] above what any policy can have; without the clip it stays "
        "below."
    ),
    paper=(
        "Wherever a ratio is a priority or bootstrapped from, negative outputs are clipped at 0. B6 bounds E_μ[c] by "
        "1 + γ̂p₀/(1 - γ̂), where p₀ is the share of states that start an episode, and shows a linear fit that diverges "
        "because of the clip."
    ),
    games=ONE_GAME,
    arms=every_scale(
        (
            Arm(BASELINE, "c51-corrected"),
            Arm(UNCLIPPED, "c51-corrected", {"source_clip": False}),
            Arm("positive head", "c51-corrected", {"ratio_head": "softplus"}),
            Arm("1/c", "c51-corrected", {"ratio_weighting": "inverse"}),
            Arm("1/c, positive head (c51-dual)", "c51-dual"),
            Arm("matched (c51-matched)", "c51-matched"),
        )
    ),
    seeds={"paper": 5, "small": 5, "smoke": 1},
    rule=(
        "The value of a run is its mean of E_μ[max(c, 0)] over the last 3 rows. The claim holds if the interquartile "
        "mean, with Student's 95 % interval for trimmed means, is above the bound with the clip and below it without. It does "
        "not hold if the 97.5 % interval is below the bound with the clip or above it without. Otherwise, and with fewer than "
        "three seeds, the data do not decide."
    ),
    analyze=lambda results: analyze(results),
)

COLUMN = "mean_ratio"
"""Of the metrics: E_μ[max(c, 0)]."""

STATES = 50_000
"""States of the data over which the balance is averaged."""

EPISODES = 200
"""Episodes of a run's policy, for their lengths."""


class Balance(NamedTuple):
    """What makes up E_μ[c]: means over states of the data, where c is the head's output.

    With x for what targets bootstrap from, c or max(c, 0), a fixed point has (B6)

        mean = 1 + γ̂/(1 - γ̂) · (p₀ - ended + clipped + chance).

    Attributes:
        mean: E_μ[c].
        clipped: E_μ[x - c], which the clip adds.
        ended: E_μ[ρx; the episode ends], which is passed on to no state.
        chance: E_μ[(ρ - 1)x], 0 in expectation.
    """

    mean: float
    clipped: float
    ended: float
    chance: float


def verdict(clipped: NDArray[np.float64], unclipped: NDArray[np.float64], bound: float) -> str:
    """The rule above, from each run's E_μ[max(c, 0)] with and without the clip."""
    return judge_signs([clipped - bound, bound - unclipped], trim=True)


def analyze(results: Results) -> dict[str, Any]:
    """Curves of the score and of E_μ[c], and what E_μ[c] is made of at the end."""
    (game,) = results.games
    low, bound = results.possible_means(game, BASELINE)
    scores = results.score_table(BASELINE)
    ends, rows = {}, []
    parts = list(zip(results.arms, scores["rows"], strict=True))
    for arm, scored in results.slowly("arms analyzed", parts):
        runs = results.of(game, arm.label)
        opened = [(run.path, open_store(results.data_of(run).path)) for run in runs]
        end = ends[arm.label] = interval_of(results.endings(game, arm.label, COLUMN))
        balance = np.mean([balance_of(path, store) for path, store in opened], axis=0)
        least, most = np.mean([range_by_episodes(path, store) for path, store in opened], axis=0)
        rows.append(
            [
                *(
                    arm.label,
                    *_without_ratio(scored, scores["columns"]),
                    *(f"{part:.2f}" for part in balance),
                ),
                *(say(end), f"{least:.1f} to {most:.1f}"),
            ]
        )
    panel = results.panel(game, COLUMN, "mean of max(c, 0) over the data")
    panel["lines"] = [
        {"label": "the most of any policy", "y": bound},
        {"label": "the least of any policy", "y": low},
    ]
    columns = ["arm", *_without_ratio(scores["columns"], scores["columns"])]
    columns += ["E_μ[c]", "clipped", "ended", "chance", "E_μ[max(c, 0)]", "exact, by π's episodes"]
    clipped, unclipped = (results.endings(game, label, COLUMN) for label in (BASELINE, UNCLIPPED))
    return {
        "verdict": verdict(clipped, unclipped, bound),
        "found": f"E_μ[max(c, 0)] at the end, where policies have {low:.2f} to {bound:.1f}: {say_each(ends)}.",
        "headline": headline(ends[BASELINE], f"E_μ[max(c, 0)], of at most {bound:.1f}", BASELINE),
        "table": {"columns": columns, "rows": rows},
        "panels": [*results.score_panels(), panel],
    }


def range_by_episodes(run: Path, store: Store) -> tuple[float, float]:
    """The least and the most that E_μ[c] can be for a run's final policy, by the lengths of its episodes (B6).

    The mass that enters the ratio at starts of episodes, γ̂p₀, stays for the discounted length of an episode; the mass
    that enters everywhere, 1 - γ̂ in all, stays for 1 to 1/(1 - γ̂) steps.
    """
    from covshift.runs import load_run, roll_out

    agent = load_run(run)
    config = agent.config
    gamma = config.ratio.ratio_discount
    policy, rng = agent.policy(config.ratio.target_epsilon), np.random.default_rng(0)
    episodes = roll_out(policy, config.env, config.environment, EPISODES, rng)
    length = float(np.mean([(1.0 - gamma**episode.length) / (1.0 - gamma) for episode in episodes]))
    from_starts = gamma * store.initial_share() * length
    return from_starts + 1.0 - gamma, from_starts + 1.0


def balance_of(run: Path, store: Store) -> Balance:
    """What makes up E_μ[c] at a run's last checkpoint, over transitions of the data that are drawn uniformly."""
    import torch

    from covshift.runs import load_run

    agent = load_run(run)
    transitions = np.flatnonzero(store.is_transition)
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(transitions, min(STATES, len(transitions)), replace=False))
    parts = []
    for part in np.array_split(rows, -(-len(rows) // 512)):
        observed = store.states(part)
        with torch.no_grad():
            features = agent.network.torso(torch.from_numpy(observed))
            c = agent.network.ratio(features).double().numpy()
        source = np.maximum(c, 0.0) if agent.config.ratio.source_clip else c
        taken = store.columns["action"][part].astype(np.int64)
        rho = agent.probabilities(observed)[np.arange(len(part)), taken] / store.columns["mu"][part]
        ends = store.columns["terminated"][part + 1]
        parts.append(np.stack([c, source - c, rho * source * ends, (rho - 1.0) * source]))
    return Balance(*np.concatenate(parts, axis=1).mean(axis=1).tolist())


def _without_ratio(cells: list[str], columns: list[str]) -> list[str]:
    """A row of the table of scores without arm, game and E_μ[c], of which this table has more."""
    left_out = ("arm", "game", "E_μ[c]")
    return [cell for cell, name in zip(cells, columns, strict=True) if name not in left_out]
