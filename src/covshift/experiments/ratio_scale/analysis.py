"""E_μ[c] against its bound, and where its mass comes from and goes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from covshift.data.store import Store
from covshift.experiments.results import FEWEST_SEEDS, LAST, SEED, Results, column_of, say
from covshift.records import RunFolder, largest_mean
from covshift.report.statistics import bootstrap_estimate
from covshift.runs import load_run

BASELINE = "linear, sources clipped (paper)"
UNCLIPPED = "linear, sources not clipped"
STATES = 50_000


class Masses(NamedTuple):
    """Means over states of the data.

    Attributes:
        negative: E_μ[max(-c, 0)], which a clip turns into 0.
        ended: E_μ[ρ max(c, 0); the episode ends], which is bootstrapped from by no state.
    """

    negative: float
    ended: float


def analyze(results: Results) -> dict[str, Any]:
    """Curves of the score and of E_μ[c], and the masses at the end."""
    (game,) = results.games
    store = Store.open(results.data[game])
    bound = largest_mean(results.of(game, BASELINE)[0].config().ratio, store.initial_share())
    scores = results.score_table(BASELINE)
    ends, rows = {}, []
    for arm, scored in zip(results.arms, scores["rows"], strict=True):
        runs = results.of(game, arm.label)
        means = np.array([column_of(run, "mean_ratio")[1][-LAST:].mean() for run in runs])
        end = ends[arm.label] = bootstrap_estimate(means, np.random.default_rng(SEED))
        negative, ended = np.mean([weigh(run, store) for run in runs], axis=0)
        rows.append([arm.label, say(end), f"{negative:.3f}", f"{ended:.3f}", *scored[2:]])
    clipped, plain = ends[BASELINE], ends[UNCLIPPED]
    verdict = "not enough data"
    if results.seeds >= FEWEST_SEEDS and (clipped.high < bound or plain.low > bound):
        verdict = "does not hold"
    elif results.seeds >= FEWEST_SEEDS and clipped.low > bound > plain.high:
        verdict = "holds"
    said = "; ".join(f"{label}: {say(end)}" for label, end in ends.items())
    panel = results.panel(game, "mean_ratio", "mean c over the data")
    panel["lines"] = [{"label": "bound for every policy", "y": bound}]
    return {
        "verdict": verdict,
        "found": f"E_μ[c] at the end, where no policy has more than {bound:.1f}: {said}.",
        "table": {
            "columns": [
                "arm",
                "E_μ[c]",
                "E_μ[max(-c, 0)]",
                "E_μ[ρc; ends]",
                *scores["columns"][2:],
            ],
            "rows": rows,
        },
        "panels": [*results.score_panels(), panel],
    }


def weigh(run: RunFolder, store: Store) -> Masses:
    """The masses of a run's last checkpoint, over states drawn uniformly."""
    agent = load_run(run.path)
    states = np.flatnonzero(store.is_state)
    rng = np.random.default_rng(SEED)
    rows = np.sort(rng.choice(states, min(STATES, len(states)), replace=False))
    negative, ended = [], []
    for part in np.array_split(rows, -(-len(rows) // 512)):
        observed = store.states(part)
        with torch.no_grad():
            features = agent.network.torso(torch.from_numpy(observed))
            c = agent.network.ratio(features).numpy()
        taken = store.columns["action"][part].astype(np.int64)
        rho = agent.probabilities(observed)[np.arange(len(part)), taken] / store.columns["mu"][part]
        ends = store.columns["terminated"][np.minimum(part + 1, len(store) - 1)]
        negative.append(np.maximum(-c, 0.0))
        ended.append(rho * np.maximum(c, 0.0) * (ends & store.is_transition[part]))
    return Masses(float(np.concatenate(negative).mean()), float(np.concatenate(ended).mean()))
