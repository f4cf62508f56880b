"""Evaluates a policy in four rooms, trains agents from random play of Breakout, and writes a page about both."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from covshift.config.presets import make_config
from covshift.data.store import Store
from covshift.experiments.comparison.results import LAST, DataRecord, RunRecord
from covshift.experiments.comparison.running import collect_data, make_engine, train_all
from covshift.experiments.demo import SIZES, Sizes
from covshift.experiments.demo.pictures import draw_curves, draw_histogram, gallery
from covshift.experiments.demo.rooms import STEPS, STREAMS, Rooms, draw_rooms, estimate_rooms
from covshift.experiments.experiment import Outcome, RunOptions
from covshift.experiments.frames import SampledRatios, sample_ratios
from covshift.experiments.tables import write_csv
from covshift.files import check_folder, write_text
from covshift.report.figures_page import SMOKE
from covshift.report.page import render
from covshift.report.statistics import Curve
from covshift.runs.sweeps import Job
from covshift.validation import MOST_SEEDS, check_count
from covshift.version import __version__

ENV = "MinAtar/Breakout-v1"
PLAIN, CORRECTED = "c51", "c51-matched"
TITLES = {PLAIN: "C51, no correction", CORRECTED: "C51, drawn by c(s)"}
SAMPLE = 20_000
"""States of the data whose ratio is drawn."""


class Agent(NamedTuple):
    """The runs of one preset.

    Attributes:
        title: what the page calls the agent.
        curves: the score of each seed against updates.
        scores: the final score of each seed.
        diverged: how many runs stopped because the ratio or the loss diverged.
        mean_ratio: E_μ[c] at the end, a mean over seeds; NaN without a ratio.
        exact_mean_ratio: the same by episodes of the agent's own policy, with no ratio involved.
    """

    title: str
    curves: list[Curve]
    scores: list[float]
    diverged: int
    mean_ratio: float
    exact_mean_ratio: float

    @property
    def mean(self) -> float:
        """The mean final score over seeds."""
        return float(np.mean(self.scores))


def run(folder: Path, options: RunOptions, console: Console) -> Outcome:
    """The demo at a scale."""
    sizes = SIZES[options.scale]
    if options.seeds is not None:
        sizes = sizes._replace(seeds=options.seeds)
    return run_demo(folder, sizes, options, console)


def run_demo(folder: Path, sizes: Sizes, options: RunOptions, console: Console) -> Outcome:
    """Estimates, collects data, trains, and writes `index.html`, `rooms.svg` and `ratios.csv`.

    The same call continues after an interruption.
    """
    engine = make_engine(options)
    check_count("seeds", sizes.seeds, MOST_SEEDS)
    check_folder(folder)
    lengths = {"num_updates": sizes.updates, "evaluate_every": max(1, sizes.updates // 10)}
    amounts = {"transitions": sizes.transitions, "window": sizes.transitions}
    configs = {
        (preset, seed): make_config(ENV, preset, "small", seed=seed, **lengths, **amounts)
        # The longer runs first, so that no core waits for the last of them.
        for preset in (CORRECTED, PLAIN)
        for seed in range(sizes.seeds)
    }
    rooms = estimate_rooms(seed=0)
    _print_rooms(console, rooms)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "rooms.svg", draw_rooms(rooms))
    data = collect_data(configs[PLAIN, 0], folder / "data", console)
    jobs = {
        (preset, seed): Job(folder / "runs" / f"{preset}-seed{seed}", config, str(data))
        for (preset, seed), config in configs.items()
    }
    train_all(list(jobs.values()), engine, console)
    agents = {
        preset: _agent(preset, [jobs[preset, seed].folder for seed in range(sizes.seeds)])
        for preset in TITLES
    }
    store = Store.open(data)
    sample = sample_ratios(store, jobs[CORRECTED, 0].folder, SAMPLE)
    records = zip(sample.rows.tolist(), sample.ratio.tolist(), strict=True)
    write_csv(folder / "ratios.csv", [("row", "ratio"), *records])
    episodes = configs[PLAIN, 0].evaluation.evaluation_episodes
    record = DataRecord.read(data)
    write_text(
        folder / "index.html", _page(folder, sizes, episodes, rooms, agents, store, record, sample)
    )
    _print_agents(console, agents, record.behavior_score)
    return Outcome(folder / "index.html", banner=_banner(sizes))


def compare(plain: Agent, corrected: Agent) -> str:
    """What the scores can tell; seeds are what varies."""
    gap = corrected.mean - plain.mean
    word = "more" if gap >= 0 else "less"
    text = f"The corrected agent scores {abs(gap):.2f} {word} than the uncorrected one. "
    if plain.diverged or corrected.diverged:
        text += (
            f"{corrected.diverged} of its runs diverged, and {plain.diverged} of the other's; these count with their "
            "last evaluations. "
        )
    seeds = len(plain.scores)
    if seeds < 2:
        return text + "One seed each cannot tell whether that is more than chance."
    variances = (np.var(agent.scores, ddof=1) for agent in (plain, corrected))
    spread = np.sqrt(sum(variances) / seeds)
    return text + (
        f"The standard error of that difference, from {seeds} seeds each, is {spread:.2f}: "
        + (
            "the difference is more than twice that, but so few seeds estimate it roughly."
            if abs(gap) > 2 * spread
            else "this difference could be chance; run more seeds."
        )
    )


def _banner(sizes: Sizes) -> str:
    """A warning where runs are as short as those of the scale `smoke`."""
    return SMOKE if sizes.updates <= SIZES["smoke"].updates else ""


def _agent(preset: str, folders: list[Path]) -> Agent:
    runs = [RunRecord.read(folder) for folder in folders]
    return Agent(
        TITLES[preset],
        [run.curve("score") for run in runs],
        [run.ending("score") for run in runs],
        sum(run.diverged for run in runs),
        float(np.mean([run.ending("mean_ratio") for run in runs])),
        float(np.mean([run.ending("exact_mean_ratio") for run in runs])),
    )


def _print_rooms(console: Console, rooms: Rooms) -> None:
    """Estimates from random steps beside the exact answers."""
    table = Table("four rooms", "reward per step", "95 % interval", box=box.SIMPLE)
    for name, value, interval in _rooms_rows(rooms):
        table.add_row(name, value, interval)
    console.print(table)
    console.print(_rooms_text(rooms), highlight=False)


def _rooms_rows(rooms: Rooms) -> list[tuple[str, str, str]]:
    new, old = rooms.difference.new, rooms.difference.old
    return [
        ("random walk, the data", f"{old.value:.4f}", ""),
        ("walk to the goal, estimated", f"{new.value:.4f}", f"{new.low:.4f} to {new.high:.4f}"),
        ("walk to the goal, exact", f"{rooms.true_value:.4f}", ""),
    ]


def _rooms_text(rooms: Rooms) -> str:
    return (
        f"From {STREAMS * STEPS:,} random steps, without one step of the new policy. The estimated ratio of its visits "
        f"to those of the random walk is {rooms.ratio_error:.0%} from the exact one."
    )


def _print_agents(console: Console, agents: dict[str, Agent], behavior_score: float) -> None:
    """The scores as a table and a sentence."""
    table = Table("Breakout", "mean score", "each seed", "mean c", "exact mean c", box=box.SIMPLE)
    table.add_row("random play, the data", f"{behavior_score:.2f}", "", "", "")
    for agent in agents.values():
        ratios = [
            "" if np.isnan(x) else f"{x:.2f}" for x in (agent.mean_ratio, agent.exact_mean_ratio)
        ]
        each = ", ".join(f"{score:.2f}" for score in agent.scores)
        table.add_row(agent.title, f"{agent.mean:.2f}", each, *ratios)
    console.print(table)
    console.print(compare(agents[PLAIN], agents[CORRECTED]), highlight=False)


def _page(
    folder: Path,
    sizes: Sizes,
    episodes: int,
    rooms: Rooms,
    agents: dict[str, Agent],
    store: Store,
    data: DataRecord,
    sample: SampledRatios,
) -> str:
    ratio = sample.ratio
    share = ratio.mean() ** 2 / (ratio**2).mean()
    order = np.argsort(ratio)
    plural = "seed" if sizes.seeds == 1 else "seeds"
    return render(
        "demo.html.j2",
        rooms=_rooms_rows(rooms),
        rooms_text=_rooms_text(rooms),
        rooms_figure=(folder / "rooms.svg").read_text(encoding="utf-8"),
        env=ENV,
        transitions=int(store.is_transition.sum()),
        random_score=data.behavior_score,
        arms=list(agents.values()),
        updates=sizes.updates,
        banner=_banner(sizes),
        last=LAST,
        episodes=episodes,
        verdict=compare(agents[PLAIN], agents[CORRECTED]),
        curves=draw_curves(
            {agent.title: agent.curves for agent in agents.values()}, data.behavior_score
        ),
        curves_text=(
            f"Each thin line is a seed, the thick line their mean ({sizes.seeds} {plural} each). Both agents see the same "
            "data and act in the game only to be scored, so a curve above the dashed line was learned from random play. "
            f"Single evaluations of {episodes} episodes are noisy."
        ),
        histogram=draw_histogram(ratio),
        histogram_text=(
            f"c of {len(ratio):,} states of the data, drawn uniformly, by the first seed. Their mean is {ratio.mean():.2f}. "
            f"Sampling by c leaves an effective share of {share:.0%} of the data. The mean is not 1 because c counts visits "
            "per episode: a policy that survives longer than a random one visits more states. Episodes that the agents "
            f"played say {agents[CORRECTED].exact_mean_ratio:.2f}, where the learned ratios of all seeds have a mean of "
            f"{agents[CORRECTED].mean_ratio:.2f} in the last updates."
        ),
        gallery_text=(
            "States of the data that the corrected agent's ratio ranks highest and lowest. High c should mark what the "
            "learned policy meets more often than a random one: later stages of a game, with bricks gone. Low c should "
            "mark what its actions avoid."
        ),
        highest=gallery(store, sample, order[::-1]),
        lowest=gallery(store, sample, order),
        command=(
            f"covshift demo --out {folder} --transitions {sizes.transitions} --updates {sizes.updates} "
            f"--seeds {sizes.seeds}"
        ),
        folder=str(folder),
        watched=CORRECTED,
        version=__version__,
    )
