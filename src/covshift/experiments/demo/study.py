"""MinAtar Breakout from random data: C51 and corrected C51, and a page that shows what came of it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions, TrainConfig
from covshift.data.collection import Collector
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.progress import counter
from covshift.records import RunFolder
from covshift.report.live import SweepView
from covshift.report.page import render
from covshift.report.pictures import picture_uri
from covshift.report.plots import COLORS, house_style, panels, to_svg
from covshift.runs import load_run
from covshift.runs.launch import ensure_dataset
from covshift.runs.sweeps import Job, Sweep
from covshift.version import __version__

ENV = "MinAtar/Breakout-v1"
ARMS = {"c51": "C51, no correction", "c51-corrected": "C51, replay prioritized by c(s)"}
SAMPLE = 20_000
"""States of the data whose ratio is drawn."""

SHOWN = 12
"""Frames of each gallery."""

LAST = 3
"""Evaluations that a score is the mean of."""


@dataclass(frozen=True)
class Arm:
    """Runs of one preset.

    Attributes:
        title: of the preset.
        diverged: how many of them stopped because the ratio or the loss diverged.
        curves: (updates, scores) of each seed.
    """

    title: str
    diverged: int
    curves: list[tuple[NDArray[np.float64], NDArray[np.float64]]]

    @property
    def scores(self) -> list[float]:
        """The mean of each seed's last evaluations."""
        return [float(scores[-LAST:].mean()) for _, scores in self.curves]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(np.mean(self.scores))


class Ratios(NamedTuple):
    """The ratio of some states of the data."""

    rows: NDArray[np.int64]
    ratio: NDArray[np.float64]


def run(
    out: Path, *, transitions: int, updates: int, seeds: int, workers: int, console: Console
) -> Path:
    """Collects, trains, and writes `index.html` and `ratios.csv` into `out`; the same call goes on.

    Args:
        out: folder.
        transitions: of random play.
        updates: of each run.
        seeds: runs of each arm.
        workers: runs at once.
        console: for progress.

    Returns:
        The page.
    """
    for name, count in (("seeds", seeds), ("workers", workers)):
        if count < 1:
            raise InputError(f"{name} must be at least 1, but it is {count}")
    every = max(1, updates // 10)
    sizes = {"num_updates": updates, "evaluate_every": every}
    sizes |= {"transitions": transitions, "window": transitions}
    configs = {
        (preset, seed): make_config(ENV, preset, "small", seed=seed, **sizes)
        for seed in range(seeds)
        for preset in ARMS
    }

    def collecting(collector: Collector, folder: Path) -> None:
        with counter(console, "transitions", collector.request.transitions) as advance:
            collector.collect(progress=advance)

    first = next(iter(configs.values()))
    data = ensure_dataset(first, out / "data", collecting)
    _train(out, configs, str(data), workers, console)
    arms = {preset: _read_arm(out, preset, seeds) for preset in ARMS}
    store = Store.open(data)
    ratios = _ratios(out, store)
    page = out / "index.html"
    page.write_text(_page(out, store, arms, ratios, first, updates, seeds), encoding="utf-8")
    return page


def _run_folder(out: Path, preset: str, seed: int) -> Path:
    return out / "runs" / f"{preset}-seed{seed}"


def _train(
    out: Path,
    configs: dict[tuple[str, int], TrainConfig],
    data: str,
    workers: int,
    console: Console,
) -> None:
    jobs = [Job(_run_folder(out, *key), config, data) for key, config in configs.items()]
    folders = [RunFolder(job.folder) for job in jobs]
    totals = [job.config.optimization.num_updates for job in jobs]
    sweep = Sweep(jobs)
    with SweepView(console, [job.folder.name for job in jobs], totals) as view:
        sweep.run(
            workers,
            RuntimeOptions(threads=1),
            lambda now: view.show(folders, now.running.keys()),
        )
    for place, reason in sweep.failed.items():
        raise InputError(f"the run {jobs[place].folder} failed twice: {reason}")


def _read_arm(out: Path, preset: str, seeds: int) -> Arm:
    curves = []
    for seed in range(seeds):
        rows = [
            row for row in RunFolder(_run_folder(out, preset, seed)).metrics() if "score" in row
        ]
        points = np.array([[row["update"], row["score"]] for row in rows], dtype=np.float64)
        curves.append((points[:, 0], points[:, 1]))
    folders = [RunFolder(_run_folder(out, preset, seed)) for seed in range(seeds)]
    diverged = sum(folder.status()["status"] == "diverged" for folder in folders)
    return Arm(ARMS[preset], diverged, curves)


def _ratios(out: Path, store: Store) -> Ratios:
    """c of states that are drawn uniformly from the data, by the first corrected run."""
    rng = np.random.default_rng(0)
    rows = np.flatnonzero(store.is_state)
    rows = np.sort(rng.choice(rows, min(SAMPLE, len(rows)), replace=False))
    agent = load_run(_run_folder(out, "c51-corrected", 0))
    parts = [agent.ratio(store.states(part)) for part in np.array_split(rows, -(-len(rows) // 512))]
    ratio = np.concatenate(parts).astype(np.float64)
    with (out / "ratios.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row", "ratio"])
        writer.writerows(zip(rows.tolist(), ratio.tolist(), strict=True))
    return Ratios(rows, ratio)


def _page(
    out: Path,
    store: Store,
    arms: dict[str, Arm],
    ratios: Ratios,
    config: TrainConfig,
    updates: int,
    seeds: int,
) -> str:
    random_score = float(store.columns["reward"].sum() / store.columns["is_initial"].sum())
    mean = float(ratios.ratio.mean())
    share = mean**2 / float((ratios.ratio**2).mean())
    zero = float((ratios.ratio == 0).mean())
    order = np.argsort(ratios.ratio)
    with house_style():
        curves = _draw_curves(arms, random_score)
        histogram = _draw_histogram(ratios.ratio)
    plural = "seed" if seeds == 1 else "seeds"
    return render(
        "demo.html.j2",
        env=ENV,
        transitions=int(store.is_transition.sum()),
        random_score=random_score,
        arms=list(arms.values()),
        updates=updates,
        last=LAST,
        episodes=config.evaluation.evaluation_episodes,
        verdict=_verdict(arms["c51"], arms["c51-corrected"]),
        curves=curves,
        curves_text=(
            f"Each thin line is a seed, the thick one their mean ({seeds} {plural} each). Both agents see "
            "the same data and never act in the game but to be scored, so a curve above the dashed "
            "line is what was learned from play at random. Single evaluations of "
            f"{config.evaluation.evaluation_episodes} episodes are noisy."
        ),
        histogram=histogram,
        histogram_text=(
            f"c of {len(ratios.ratio):,} states of the data, drawn uniformly. Their mean is {mean:.2f}; "
            f"{zero:.0%} are predicted to be 0 (negative outputs are clipped). Drawing by c leaves an "
            f"effective share of {share:.0%} of the data. The mean is not 1 because c counts visits in an "
            "episode: a policy that plays on longer than a random one visits more states. The learned number "
            "depends on γ̂ and on the network; read it as an order more than as a number."
        ),
        gallery_text=(
            "States of the data that the corrected agent's ratio ranks highest and lowest. High c should "
            "be what the learned policy meets more often than a random one: play that has gone on, bricks "
            "that are gone. Low c should be what its actions avoid."
        ),
        highest=_frames(store, ratios, order[::-1][: SHOWN * 40]),
        lowest=_frames(store, ratios, order[: SHOWN * 40]),
        command=(
            f"covshift demo --out {out} --transitions {config.data.transitions} --updates {updates} --seeds {seeds}"
        ),
        folder=str(out),
        version=__version__,
    )


def _verdict(plain: Arm, corrected: Arm) -> str:
    """What the numbers can say: seeds are the unit."""
    gap = corrected.mean - plain.mean
    word = "more" if gap > 0 else "less"
    text = f"The corrected agent scores {abs(gap):.2f} {word} than the uncorrected one. "
    if plain.diverged or corrected.diverged:
        text += (
            f"Of its runs {corrected.diverged} diverged, of the other's {plain.diverged}; these count with their "
            "last evaluations. "
        )
    if len(plain.curves) < 2:
        return text + "One seed each cannot tell whether that is more than chance."
    spread = np.sqrt(
        (np.var(plain.scores, ddof=1) + np.var(corrected.scores, ddof=1)) / len(plain.curves)
    )
    return text + (
        f"The standard error of that difference, from {len(plain.curves)} seeds each, is {spread:.2f}: "
        + (
            "the difference is more than twice that, but so few seeds estimate it roughly."
            if abs(gap) > 2 * spread
            else "these runs do not show a difference that chance could not make."
        )
    )


def _draw_curves(arms: dict[str, Arm], random_score: float) -> str:
    figure, (axes,) = panels(1, height=3.6)
    for color, arm in zip(COLORS, arms.values(), strict=False):
        for updates, scores in arm.curves:
            axes.plot(updates, scores, color=color, alpha=0.35, linewidth=0.9)
        length = min(len(scores) for _, scores in arm.curves)  # a run that diverged stops early
        mean = np.mean([scores[:length] for _, scores in arm.curves], axis=0)
        axes.plot(arm.curves[0][0][:length], mean, color=color, label=arm.title, linewidth=2.2)
    axes.axhline(random_score, color="#5b6478", linestyle="--", linewidth=1, label="random policy")
    axes.set(xlabel="updates", ylabel="score (mean of an evaluation)", title="Evaluation score")
    axes.legend(loc="upper left")
    return to_svg(figure, "Score of both agents against updates")


def _draw_histogram(ratio: NDArray[np.float64]) -> str:
    figure, (axes,) = panels(1, height=3.0)
    axes.hist(ratio, bins=80, color=COLORS[0])
    axes.axvline(float(ratio.mean()), color=COLORS[1], linestyle="--", label="mean")
    axes.axvline(1.0, color="#1d2433", linestyle=":", label="1: as often under π as in the data")
    axes.set(
        xlabel="c(s)", ylabel="states", yscale="log", title="Learned ratio of states of the data"
    )
    axes.legend()
    return to_svg(figure, "Histogram of the learned ratio")


def _frames(store: Store, ratios: Ratios, places: NDArray[np.int64]) -> list[dict[str, Any]]:
    """The first of these whose pictures differ."""
    frames: list[dict[str, Any]] = []
    seen: set[bytes] = set()
    for place, state in zip(places, store.states(ratios.rows[places]), strict=True):
        if state.tobytes() not in seen:
            seen.add(state.tobytes())
            frames.append({"ratio": float(ratios.ratio[place]), "uri": picture_uri(state)})
        if len(frames) == SHOWN:
            break
    return frames
