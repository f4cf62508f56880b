"""The highest and lowest frames by c, as galleries and as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from covshift.data.store import Store
from covshift.experiments.results import SEED, Results, headline
from covshift.report.pictures import picture_uri
from covshift.report.statistics import Estimate
from covshift.runs import load_run

ARM = "corrected"
STATES = {"paper": 100_000, "small": 100_000, "smoke": 1_000}
SHOWN = 50


def analyze(results: Results) -> dict[str, Any]:
    """Galleries and histograms of every game, of each run where there are several."""
    galleries, histograms, rows, differences = [], [], [], []
    for (game, _, seed), run in results.runs.items():
        name = f"{game}, seed {seed}" if results.seeds > 1 else game
        store = Store.open(results.data[game])
        states, ratio = rank(store, run.path, STATES[results.scale])
        returns = returns_so_far(store)[states]
        order = np.argsort(ratio, kind="stable")
        low, high = order[:SHOWN], order[::-1][:SHOWN]
        for title, places in (("Highest c", high), ("Lowest c", low)):
            galleries.append(
                {
                    "title": f"{name}: {title}",
                    "text": f"{len(places)} of {len(states):,} states of the random policy's data.",
                    "frames": [
                        {"ratio": float(c), "uri": picture_uri(_newest(state, store.stack), 84)}
                        for c, state in zip(
                            ratio[places], store.states(states[places]), strict=True
                        )
                    ],
                }
            )
        counts, edges = np.histogram(ratio, bins=60)
        histograms.append(
            {
                "title": name,
                "x": "c(s)",
                "edges": edges.tolist(),
                "counts": counts.tolist(),
                "text": f"Mean {ratio.mean():.2f}, {np.mean(ratio == 0):.0%} at 0, largest {ratio.max():.2f}.",
            }
        )
        rng = np.random.default_rng(SEED)
        draws = [
            rng.choice(returns[high], SHOWN).mean() - rng.choice(returns[low], SHOWN).mean()
            for _ in range(2000)
        ]
        interval = np.percentile(draws, [2.5, 97.5])
        difference = float(returns[high].mean() - returns[low].mean())
        differences.append(Estimate(difference, *interval.tolist()))
        rows.append(
            [
                *(name, f"{returns[high].mean():.2f}", f"{returns[low].mean():.2f}"),
                f"{interval[0]:.2f} to {interval[1]:.2f}",
            ]
        )
    verdict = "not enough data"
    if all(difference.low > 0 for difference in differences):
        verdict = "holds"
    elif all(difference.high < 0 for difference in differences):
        verdict = "does not hold"
    worst = min(range(len(rows)), key=lambda place: differences[place].low)
    said = "; ".join(f"{row[0]}: {row[1]} against {row[2]}" for row in rows)
    return {
        "verdict": verdict,
        "found": f"Mean return so far of the highest against the lowest: {said}.",
        "headline": headline(differences[worst], "difference in return so far", rows[worst][0]),
        "table": {
            "columns": ["game", "return so far, highest c", "lowest c", "difference, 95 %"],
            "rows": rows,
        },
        "panels": [],
        "galleries": galleries,
        "histograms": histograms,
    }


def rank(store: Store, run: Any, count: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows of distinct states of the data, drawn uniformly, and the run's ratio of each."""
    rows = np.flatnonzero(store.is_state)
    rng = np.random.default_rng(SEED)
    rows = np.sort(rng.choice(rows, min(count, len(rows)), replace=False))
    agent = load_run(run)
    ratios, keep, seen = [], [], set()
    for part in np.array_split(rows, -(-len(rows) // 512)):
        states = store.states(part)
        ratios.append(agent.ratio(states))
        for state in states:
            key = hash(state.tobytes())
            keep.append(key not in seen)
            seen.add(key)
    distinct = np.array(keep)
    return rows[distinct], np.concatenate(ratios).astype(np.float64)[distinct]


def returns_so_far(store: Store) -> NDArray[np.float64]:
    """Rewards of each row's episode up to the row."""
    total = np.cumsum(store.columns["reward"], dtype=np.float64)
    starts = np.flatnonzero(store.columns["is_initial"])
    before = np.repeat(total[starts], np.diff([*starts.tolist(), len(total)]))
    return np.asarray(total - before)


def _newest(state: NDArray[Any], stack: int) -> NDArray[Any]:
    return np.asarray(state[-1]) if stack > 1 else state
