"""How an experiment that trains agents is designed: a claim, arms as data, a rule, and an analysis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, final

from covshift.config.presets import make_config
from covshift.config.settings import parse_settings
from covshift.config.training import TrainConfig
from covshift.errors import InputError
from covshift.experiments.experiment import Outcome, RunOptions, check_scale, lacks_scale
from covshift.extras import extras_of_env

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from covshift.experiments.comparison.results import Results

MINATAR = (
    "MinAtar/Asterix-v1",
    "MinAtar/Breakout-v1",
    "MinAtar/Seaquest-v1",
    "MinAtar/SpaceInvaders-v1",
)
ATARI = (
    "ALE/Asterix-v5",
    "ALE/Breakout-v5",
    "ALE/Pong-v5",
    "ALE/Seaquest-v5",
    "ALE/SpaceInvaders-v5",
)
ONE_GAME = {
    "paper": ("ALE/Pong-v5",),
    "small": ("MinAtar/Breakout-v1",),
    "smoke": ("MinAtar/Breakout-v1",),
}
"""For experiments that the paper runs on Pong."""

ALL_GAMES = {
    "paper": ATARI,
    "atari": ATARI,
    "small": MINATAR,
    "smoke": ("MinAtar/Breakout-v1",),
}
"""For experiments that the paper runs on five games; MinAtar has no Pong."""

UPDATES_PER_SECOND = {"paper": 20.0, "atari": 25.0, "small": 200.0, "smoke": 20.0}
"""Roughly, for one run of the corrected agent on one core; see `benchmarks/update.py`."""

UPDATES_PER_ITERATION = 62_500
"""An iteration of the paper is 250 000 agent steps, with an update every 4."""

DATASETS = {"paper": 1, "atari": 3, "small": 5, "smoke": 5}
"""Datasets per game: the run of seed k learns from the one that was collected with data seed k mod this number.

One dataset for all seeds would leave the variance of the collection out of every interval. Arms that are compared share
the datasets, seed by seed. At the scale `paper` ten million transitions are collected once.
"""


VALUE_BOUNDS: Mapping[str, Mapping[str, float]] = {"small": {"MinAtar/SpaceInvaders-v1": 40.0}}
"""Where the atoms end at a scale in a game, if not at C51's ±10.

The rule: the first of 10, 40 and 160 with which a run of `c51` has at most 5 % of its probability on the outermost atoms at
every evaluation; `docs/experiments.md` has the measurements.
"""


@final
@dataclass(frozen=True)
class Arm:
    """One line of a figure: the runs of one method.

    Args:
        label: its name in the figure's legend.
        preset: the method.
        leaves: settings that differ from the preset, by the names of their fields.
        online: the agent collects its own data, instead of learning from random play.
    """

    label: str
    preset: str
    leaves: Mapping[str, Any] = field(default_factory=dict)
    online: bool = False


@final
@dataclass(frozen=True)
class Comparison:
    """A claim about agents, of the paper or ours, with everything that it takes to check it.

    Games, arms and seeds are given for each scale.

    Args:
        name: the name of its module.
        aliases: the figures of the paper that it reproduces.
        title: a few words.
        claim: what is checked, in one sentence.
        paper: what the paper says about it.
        games: environments.
        arms: methods to run in each game.
        seeds: runs of each arm in each game.
        rule: how the verdict follows from the numbers.
        analyze: makes the figure's verdict, table and panels from the finished runs.
        differences: from the paper, beside those in `docs/agent.md`.
        first_seed: the number of the first seed. If it is not 0, each seed has a dataset of its own: runs that share neither
            seeds nor data with the other experiments.
    """

    name: str
    aliases: tuple[str, ...]
    title: str
    claim: str
    paper: str
    games: Mapping[str, tuple[str, ...]]
    arms: Mapping[str, tuple[Arm, ...]]
    seeds: Mapping[str, int]
    rule: str
    analyze: Callable[[Results], dict[str, Any]]
    differences: tuple[str, ...] = ()
    first_seed: int = 0

    def configs(self, scale: str, seeds: int) -> dict[tuple[str, str, int], TrainConfig]:
        """The configuration of each run, by game, arm and seed."""
        return {
            (game, arm.label, seed): make_config(
                game,
                arm.preset,
                scale,
                **(self._leaves_of(game, scale, seed) | dict(arm.leaves)),
            )
            for seed in range(self.first_seed, self.first_seed + seeds)
            for game in self.games[scale]
            for arm in self.arms[scale]
        }

    def _leaves_of(self, game: str, scale: str, seed: int) -> dict[str, Any]:
        """The settings that do not depend on the arm."""
        bounds = VALUE_BOUNDS.get(scale, {})
        bound = {"value_bound": bounds[game]} if game in bounds else {}
        data_seed = seed if self.first_seed else seed % DATASETS[scale]
        return {"seed": seed, "data_seed": data_seed, **bound}

    def online_arms(self, scale: str) -> set[str]:
        """The labels of the arms whose agents collect their own data."""
        return {arm.label for arm in self.arms[scale] if arm.online}

    def changed(self, options: RunOptions) -> Comparison:
        """The comparison with the settings and arms that the command line adds, at one scale.

        Raises:
            InputError: there is no such setting or preset, arms differ in the setting, or an arm's name is taken.
        """
        settings, arms = parse_settings(options.set), self.arms[options.scale]
        for name in settings:
            if any(name in arm.leaves for arm in arms):
                raise InputError(
                    f"{name} is what arms of {self.name} differ in; add an arm instead: --arm 'NAME:{name}=VALUE'"
                )
        added = tuple(_parse_arm(text) for text in options.arm)
        labels = [arm.label for arm in (*arms, *added)]
        for label in labels:
            if labels.count(label) > 1:
                raise InputError(f"there are two arms '{label}'; give the new one another name")
        every = tuple(replace(arm, leaves={**settings, **arm.leaves}) for arm in (*arms, *added))
        return replace(self, arms={**self.arms, options.scale: every})

    def cost(self, scale: str) -> str:
        """The number of runs and updates, and roughly how long they take."""
        if scale not in self.arms:
            return lacks_scale(scale, self.arms)
        configs = self.configs(scale, self.seeds[scale]).values()
        lengths = sorted(config.optimization.num_updates for config in configs)
        hours = sum(lengths) / UPDATES_PER_SECOND[scale] / 2 / 3600
        time = f"{hours:,.1f} h" if hours >= 0.1 else f"{60 * hours:.0f} min"
        updates = " to ".join(f"{length:,}" for length in dict.fromkeys((lengths[0], lengths[-1])))
        return f"{len(lengths)} runs of {updates} updates, about {time} on two cores"

    def extras(self, scale: str) -> tuple[str, ...]:
        """PyTorch, and what the games need."""
        check_scale(self.name, scale, self.arms)
        games = {extra for game in self.games[scale] for extra in extras_of_env(game)}
        return (*sorted(games), "torch")

    def run(self, out: Path, options: RunOptions, console: Console) -> Outcome:
        """Trains the missing runs and writes the figure into its folder under `out`; see `reproduction`."""
        from covshift.experiments.comparison.reproduction import reproduce

        check_scale(self.name, options.scale, self.arms)
        return reproduce(self, out, options, console)


def _parse_arm(text: str) -> Arm:
    """The arm that `name:key=value,…` describes; the key `preset` names the method that it changes."""
    label, separator, rest = text.partition(":")
    if not separator or not label.strip():
        raise InputError(
            f"'{text}' is no arm; write NAME:key=value,…, such as 'no clip:source_clip=false'"
        )
    leaves = parse_settings(rest.split(","), also=("preset",))
    return Arm(label.strip(), leaves.pop("preset", "c51-corrected"), leaves)


def every_scale(arms: tuple[Arm, ...], iterations: int = 150) -> dict[str, tuple[Arm, ...]]:
    """The same arms at every scale; at the scale `paper` they run for this many of the paper's iterations."""
    length = {"num_updates": iterations * UPDATES_PER_ITERATION}
    at_paper = tuple(replace(arm, leaves={**arm.leaves, **length}) for arm in arms)
    return {"paper": at_paper, "small": arms, "smoke": arms}
