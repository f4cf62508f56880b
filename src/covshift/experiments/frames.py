"""Figures 5, 7 and 8: states of the data by their ratio."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.experiments.comparison.design import ALL_GAMES, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import Results, open_store
from covshift.experiments.comparison.verdicts import FAILS, HOLDS, UNDECIDED, headline
from covshift.report.statistics import Estimate

if TYPE_CHECKING:
    from covshift.data.store import Store

EXPERIMENT = Comparison(
    name="frames",
    aliases=("figure-5", "figure-7", "figure-8"),
    title="Frames of high and low ratio",
    claim="States of the highest c have more reward behind them in their episode than states of the lowest c.",
    paper=(
        "Of 100 000 states under the random policy the 50 with the highest and the 50 with the lowest predicted c are "
        "shown: frames of high c are those that a good policy would see."
    ),
    games=ALL_GAMES,
    arms=every_scale((Arm("corrected", "c51-corrected"),), iterations=50),
    seeds={"paper": 1, "small": 1, "smoke": 1},
    rule=(
        "Of up to 100 000 states of the data the 50 highest and the 50 lowest by c are taken. The claim holds if in "
        "every game the highest have the larger mean return so far, with a 95 % bootstrap interval of the difference "
        "above 0. It does not hold if in every game they have the smaller one, with such an interval below 0. Otherwise the "
        "data do not decide."
    ),
    analyze=lambda results: analyze(results),
    differences=("The paper clipped at 0.0025; here c is shown as predicted, clipped at 0.",),
)

STATES = {"paper": 100_000, "small": 100_000, "smoke": 1_000}
SHOWN = 50


class SampledRatios(NamedTuple):
    """The ratio of states that are drawn uniformly from the data.

    Attributes:
        rows: of the dataset, in order.
        ratio: c, clipped at 0.
        is_new: whether no earlier row of the sample shows the same state.
    """

    rows: NDArray[np.int64]
    ratio: NDArray[np.float64]
    is_new: NDArray[np.bool_]


def verdict(differences: Sequence[Estimate]) -> str:
    """The rule above, from the difference of mean returns so far in each game."""
    if all(difference.low > 0 for difference in differences):
        return HOLDS
    return FAILS if all(difference.high < 0 for difference in differences) else UNDECIDED


def analyze(results: Results) -> dict[str, Any]:
    """Galleries and histograms of every game, for each run if there are several."""
    galleries, histograms, rows = [], [], []
    differences: dict[str, Estimate] = {}
    for (game, _, seed), run in results.runs.items():
        name = f"{game}, seed {seed}" if results.seeds > 1 else game
        store = open_store(results.data_of(run).path)
        sample = sample_ratios(store, run.path, STATES[results.scale])
        states, ratio = sample.rows[sample.is_new], sample.ratio[sample.is_new]
        order = np.argsort(ratio, kind="stable")
        low, high = order[:SHOWN], order[::-1][:SHOWN]
        galleries += [
            _gallery(f"{name}: {title}", store, states, ratio, shown)
            for title, shown in (("Highest c", high), ("Lowest c", low))
        ]
        histograms.append(_histogram(name, ratio))
        returns = returns_so_far(store)[states]
        difference = differences[name] = _difference(returns[high], returns[low])
        rows.append(
            [
                *(name, f"{returns[high].mean():.2f}", f"{returns[low].mean():.2f}"),
                f"{difference.low:.2f} to {difference.high:.2f}",
            ]
        )
    worst = min(differences, key=lambda name: differences[name].low)
    said = "; ".join(f"{row[0]}: {row[1]} against {row[2]}" for row in rows)
    return {
        "verdict": verdict(list(differences.values())),
        "found": f"Mean return so far of the highest against the lowest: {said}.",
        "headline": headline(differences[worst], "difference in return so far", worst),
        "table": {
            "columns": ["game", "return so far, highest c", "lowest c", "difference, 95 %"],
            "rows": rows,
        },
        "panels": [],
        "galleries": galleries,
        "histograms": histograms,
    }


def sample_ratios(store: Store, run: Path, count: int) -> SampledRatios:
    """The ratio that a run's last checkpoint gives to `count` states of the data, or to all if there are fewer."""
    from covshift.runs import load_run

    agent = load_run(run)
    rows = np.flatnonzero(store.is_state)
    rows = np.sort(np.random.default_rng(0).choice(rows, min(count, len(rows)), replace=False))
    ratios, is_new, seen = [], [], set()
    for part in np.array_split(rows, -(-len(rows) // 512)):
        states = store.states(part)
        ratios.append(agent.ratio(states))
        for state in states:
            key = hash(state.tobytes())
            is_new.append(key not in seen)
            seen.add(key)
    return SampledRatios(rows, np.concatenate(ratios).astype(np.float64), np.array(is_new))


def returns_so_far(store: Store) -> NDArray[np.float64]:
    """For each row, the sum of rewards of its episode up to the row."""
    total = np.cumsum(store.columns["reward"], dtype=np.float64)
    starts = np.flatnonzero(store.columns["is_initial"])
    before = np.repeat(total[starts], np.diff([*starts.tolist(), len(total)]))
    return np.asarray(total - before)


def _difference(high: NDArray[np.float64], low: NDArray[np.float64]) -> Estimate:
    """The difference of two means, with its 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    draws = [rng.choice(high, SHOWN).mean() - rng.choice(low, SHOWN).mean() for _ in range(2000)]
    return Estimate(float(high.mean() - low.mean()), *np.percentile(draws, [2.5, 97.5]).tolist())


def _gallery(
    title: str,
    store: Store,
    rows: NDArray[np.int64],
    ratio: NDArray[np.float64],
    shown: NDArray[np.int64],
) -> dict[str, Any]:
    from covshift.report.pictures import picture_uri

    states = store.states(rows[shown])
    newest = states[:, -1] if store.stack > 1 else states
    return {
        "title": title,
        "text": f"{len(shown)} of {len(rows):,} states of the random policy's data.",
        "frames": [
            {"ratio": float(c), "uri": picture_uri(state, 84)}
            for c, state in zip(ratio[shown], newest, strict=True)
        ],
    }


def _histogram(title: str, ratio: NDArray[np.float64]) -> dict[str, Any]:
    counts, edges = np.histogram(ratio, bins=60)
    return {
        "title": title,
        "x": "c(s)",
        "edges": edges.tolist(),
        "counts": counts.tolist(),
        "text": f"Mean {ratio.mean():.2f}, {np.mean(ratio == 0):.0%} at 0, largest {ratio.max():.2f}.",
    }
