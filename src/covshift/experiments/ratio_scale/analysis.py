"""E_μ[c] against its bound, and where its mass comes from and goes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from covshift.data.store import Store
from covshift.experiments.results import FEWEST_SEEDS, SEED, Results, headline, say
from covshift.records import RunFolder, possible_means
from covshift.report.statistics import bootstrap_estimate
from covshift.runs import load_run, roll_out

BASELINE = "clipped (paper)"
UNCLIPPED = "not clipped"
STATES = 50_000
EPISODES = 200


class Masses(NamedTuple):
    """Means over states of the data, c as the head gives it; x is what is bootstrapped from, c or max(c, 0).

    At a fixed point mean = 1 + γ̂/(1 - γ̂) · (p₀ - ended + clipped + chance): B6.

    Attributes:
        mean: E_μ[c].
        clipped: E_μ[x - c], which the clip adds.
        ended: E_μ[ρx; the episode ends], which goes to no other state.
        chance: E_μ[(ρ - 1)x], 0 but for the sample.
    """

    mean: float
    clipped: float
    ended: float
    chance: float


def analyze(results: Results) -> dict[str, Any]:
    """Curves of the score and of E_μ[c], and the masses at the end."""
    (game,) = results.games
    store = Store.open(results.data[game])
    options = results.of(game, BASELINE)[0].config().ratio
    low, bound = possible_means(options, store.initial_share())
    scores = results.score_table(BASELINE)
    ends, rows = {}, []
    for arm, scored in zip(results.arms, scores["rows"], strict=True):
        means = results.endings(game, arm.label, "mean_ratio")
        end = ends[arm.label] = bootstrap_estimate(means, np.random.default_rng(SEED))
        masses = np.mean([weigh(run, store) for run in results.of(game, arm.label)], axis=0)
        least, most = np.mean([of_episodes(run, store) for run in results.of(game, arm.label)], 0)
        rows.append(
            [
                *(arm.label, *scored[2:6], *scored[7:], *(f"{mass:.2f}" for mass in masses)),
                *(say(end), f"{least:.1f} to {most:.1f}"),
            ]
        )
    clipped, plain = ends[BASELINE], ends[UNCLIPPED]
    verdict = "not enough data"
    if results.seeds >= FEWEST_SEEDS and (clipped.high < bound or plain.low > bound):
        verdict = "does not hold"
    elif results.seeds >= FEWEST_SEEDS and clipped.low > bound > plain.high:
        verdict = "holds"
    said = "; ".join(f"{label}: {say(end)}" for label, end in ends.items())
    panel = results.panel(game, "mean_ratio", "mean of max(c, 0) over the data")
    panel["lines"] = [
        {"label": "the most of any policy", "y": bound},
        {"label": "the least of any policy", "y": low},
    ]
    columns = ["arm", *scores["columns"][2:6], *scores["columns"][7:]]
    columns += ["E_μ[c]", "clipped", "ended", "chance", "E_μ[max(c, 0)]", "exact, by π's episodes"]
    return {
        "verdict": verdict,
        "found": f"E_μ[max(c, 0)] at the end, where policies have {low:.2f} to {bound:.1f}: {said}.",
        "headline": headline(clipped, f"E_μ[max(c, 0)], of at most {bound:.1f}", BASELINE),
        "table": {"columns": columns, "rows": rows},
        "panels": [*results.score_panels(), panel],
    }


def of_episodes(run: RunFolder, store: Store) -> tuple[float, float]:
    """The least and the most that E_μ[c] can be of the policy that a run ends with, by episodes of it: B6.

    What enters the ratio at starts, γ̂p₀, lives for the discounted length of an episode; what enters elsewhere, 1 - γ̂ in
    all, for 1 to 1/(1 - γ̂) steps.
    """
    agent = load_run(run.path)
    config = agent.config
    gamma = config.ratio.ratio_discount
    played = roll_out(
        *(agent.policy(config.ratio.target_epsilon), config.env, config.environment, EPISODES),
        np.random.default_rng(SEED),
    )
    length = float(np.mean([(1.0 - gamma**episode.length) / (1.0 - gamma) for episode in played]))
    from_starts = gamma * store.initial_share() * length
    return from_starts + 1.0 - gamma, from_starts + 1.0


def weigh(run: RunFolder, store: Store) -> Masses:
    """The masses of a run's last checkpoint, over states that were acted in, drawn uniformly."""
    agent = load_run(run.path)
    acted = np.flatnonzero(store.is_transition)
    rng = np.random.default_rng(SEED)
    rows = np.sort(rng.choice(acted, min(STATES, len(acted)), replace=False))
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
    return Masses(*np.concatenate(parts, axis=1).mean(axis=1).tolist())
