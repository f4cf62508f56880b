"""Figures 5, 7 and 8: states of the data by their ratio."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.experiments.comparison.design import ALL_GAMES, Arm, Comparison, every_scale
from covshift.experiments.comparison.results import SEED, Results, open_store
from covshift.experiments.comparison.verdicts import (
    Scores,
    headline,
    judge_signs,
    say,
    say_each,
)
from covshift.report.contrasts import trimmed_estimate
from covshift.report.statistics import RESAMPLES, Estimate

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
    seeds={"paper": 3, "small": 5, "smoke": 1},
    rule=(
        "Of up to 100 000 states of the data the 50 highest and the 50 lowest by the ratio head's output are taken, not "
        "clipped, with ties broken at random. A run's value is the difference of their mean returns so far. The claim holds "
        "if in every game the mean over seeds has a 95 % Student interval above 0. It does not hold if in one game it is "
        "below 0, with 5 % divided by the number of games. Otherwise, and with fewer than three seeds, the data do not "
        "decide. The intervals of single runs draw whole episodes."
    ),
    analyze=lambda results: analyze(results),
    differences=(
        "The paper clipped at 0.0025; here states are ranked by the output as it is, which may be negative.",
        "The paper shows one run; at the scale paper there are three, so that there is a verdict.",
    ),
)

STATES = {"paper": 100_000, "small": 100_000, "smoke": 1_000}
SHOWN = 50


class SampledRatios(NamedTuple):
    """The ratio of states that are drawn uniformly from the data.

    Attributes:
        rows: of the dataset, in order.
        output: the ratio head's output, which may be negative.
        is_new: whether no earlier row of the sample shows the same state.
    """

    rows: NDArray[np.int64]
    output: NDArray[np.float64]
    is_new: NDArray[np.bool_]

    @property
    def ratio(self) -> NDArray[np.float64]:
        """c, which is the output clipped at 0."""
        return np.maximum(self.output, 0.0)


def verdict(differences: Scores) -> str:
    """The rule above, from the difference of mean returns so far of each run, by game."""
    return judge_signs(differences.values(), trim=False)


def extremes(
    output: NDArray[np.float64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The indices of the highest and of the lowest outputs, highest and lowest first; ties are broken at random.

    In the order of rows ties would prefer the starts of episodes, which have small returns so far.
    """
    order = np.lexsort((rng.random(len(output)), output))
    return order[::-1][:SHOWN], order[:SHOWN]


def difference_by_episodes(
    high: NDArray[np.float64],
    low: NDArray[np.float64],
    high_episodes: NDArray[np.int64],
    low_episodes: NDArray[np.int64],
    rng: np.random.Generator,
) -> Estimate:
    """The difference of two means over states, with a 95 % bootstrap interval that draws whole episodes.

    States of an episode share their past, so that drawing states one by one would make the interval too narrow.
    """
    names, index = np.unique(np.concatenate([high_episodes, low_episodes]), return_inverse=True)
    drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), RESAMPLES)
    means = []
    for values, episodes in ((high, index[: len(high)]), (low, index[len(high) :])):
        weights = drawn[:, episodes]
        with np.errstate(invalid="ignore"):  # A resample may miss every episode of one side.
            means.append((weights * values).sum(axis=1) / weights.sum(axis=1))
    ends = np.nanpercentile(means[0] - means[1], [2.5, 97.5])
    return Estimate(float(high.mean() - low.mean()), *ends.tolist())


def analyze(results: Results) -> dict[str, Any]:
    """The differences of every run and over the runs of each game; galleries and histograms of the first seed."""
    galleries, histograms, rows = [], [], []
    differences: dict[str, list[float]] = {game: [] for game in results.games}
    for (game, _, seed), run in results.slowly("runs analyzed", results.runs.items()):
        name = f"{game}, seed {seed}"
        store = open_store(results.data_of(run).path)
        sample = sample_ratios(store, run.path, STATES[results.scale])
        states, output = sample.rows[sample.is_new], sample.output[sample.is_new]
        rng = np.random.default_rng([SEED, seed])
        high, low = extremes(output, rng)
        if seed == 0:
            galleries += [
                _gallery(f"{name}: {title}", store, states, output, shown)
                for title, shown in (("Highest c", high), ("Lowest c", low))
            ]
            histograms.append(_histogram(name, output))
        returns, episodes = returns_so_far(store)[states], episode_of(store)[states]
        found = difference_by_episodes(
            *(returns[high], returns[low], episodes[high], episodes[low], rng)
        )
        differences[game].append(found.value)
        rows.append(
            [
                *(name, f"{returns[high].mean():.2f}", f"{returns[low].mean():.2f}", say(found)),
                f"{np.mean(output <= 0):.0%}",
            ]
        )
    by_game = {game: np.array(found) for game, found in differences.items()}
    means = {game: trimmed_estimate(found, trim=False) for game, found in by_game.items()}
    worst = min(means, key=lambda game: means[game].low)
    rows += [[f"{game}, all seeds", "", "", say(found), ""] for game, found in means.items()]
    return {
        "verdict": verdict(by_game),
        "found": f"Mean return so far of the highest less that of the lowest, over seeds: {say_each(means)}.",
        "headline": headline(means[worst], "difference in return so far", worst),
        "table": {
            "columns": [
                *("game", "return so far, highest c", "lowest c"),
                *("difference, 95 %", "outputs at or below 0"),
            ],
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
    rows = np.sort(np.random.default_rng(SEED).choice(rows, min(count, len(rows)), replace=False))
    outputs, is_new, seen = [], [], set()
    for part in np.array_split(rows, -(-len(rows) // 512)):
        states = store.states(part)
        outputs.append(agent.ratio(states, clip=False))
        for state in states:
            key = hash(state.tobytes())
            is_new.append(key not in seen)
            seen.add(key)
    return SampledRatios(rows, np.concatenate(outputs).astype(np.float64), np.array(is_new))


def returns_so_far(store: Store) -> NDArray[np.float64]:
    """For each row, the sum of rewards of its episode up to the row."""
    total = np.cumsum(store.columns["reward"], dtype=np.float64)
    starts = np.flatnonzero(store.columns["is_initial"])
    before = np.repeat(total[starts], np.diff([*starts.tolist(), len(total)]))
    return np.asarray(total - before)


def episode_of(store: Store) -> NDArray[np.int64]:
    """For each row, the number of its episode, counted from 1 in the order of the rows."""
    return np.cumsum(store.columns["is_initial"], dtype=np.int64)


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
        "text": f"Mean {ratio.mean():.2f}, {np.mean(ratio <= 0):.0%} at or below 0, largest {ratio.max():.2f}.",
    }
