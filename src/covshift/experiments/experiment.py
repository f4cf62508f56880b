"""What an experiment is: arms as data, and an analysis of the runs that come of them."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, final

import covshift.experiments
from covshift.config.presets import make_config
from covshift.config.training import TrainConfig
from covshift.errors import InputError

if TYPE_CHECKING:
    from covshift.experiments.results import Results

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
"""Where the paper sweeps Pong."""

ALL_GAMES = {"paper": ATARI, "small": MINATAR, "smoke": ("MinAtar/Breakout-v1",)}
"""Where the paper has five games; MinAtar has no Pong."""

UPDATES_PER_SECOND = {"paper": 20.0, "small": 200.0, "smoke": 20.0}
"""Corrected updates a second of one run on a core, roughly; see `benchmarks/update.py`."""


UPDATES_PER_ITERATION = 62_500
"""An iteration of the paper is 250 000 agent steps."""


@final
@dataclass(frozen=True)
class Arm:
    """One line of a figure.

    Args:
        label: in the figure's legend.
        preset: the method.
        leaves: fields that differ from the preset.
    """

    label: str
    preset: str
    leaves: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class Experiment:
    """A claim of the paper, or one of ours, with all that it takes to check it.

    Args:
        name: of its folder.
        aliases: the figures of the paper that it reproduces.
        title: a few words.
        claim: what is to be checked, in one sentence.
        paper: what the paper says about it.
        rule: by which the verdict is reached.
        games: environments of each scale.
        arms: of each scale.
        seeds: of each scale.
        analyze: the figure's contents from the finished runs.
        differences: from the paper, beside those of `docs/agent.md`.
    """

    name: str
    aliases: tuple[str, ...]
    title: str
    claim: str
    paper: str
    rule: str
    games: Mapping[str, tuple[str, ...]]
    arms: Mapping[str, tuple[Arm, ...]]
    seeds: Mapping[str, int]
    analyze: Callable[[Results], dict[str, Any]]
    differences: tuple[str, ...] = ()

    def configs(self, scale: str, seeds: int) -> dict[tuple[str, str, int], TrainConfig]:
        """The configuration of each run, by game, arm and seed."""
        return {
            (game, arm.label, seed): make_config(
                game, arm.preset, scale, **({"seed": seed} | dict(arm.leaves))
            )
            for seed in range(seeds)
            for game in self.games[scale]
            for arm in self.arms[scale]
        }

    def cost(self, scale: str) -> str:
        """How long it takes, roughly, on two cores."""
        configs = self.configs(scale, self.seeds[scale]).values()
        (updates,) = {config.optimization.num_updates for config in configs}
        runs = len(configs)
        hours = runs * updates / UPDATES_PER_SECOND[scale] / 2 / 3600
        took = f"{hours:,.1f} h" if hours >= 0.1 else f"{60 * hours:.0f} min"
        return f"{runs} runs of {updates:,} updates, about {took} on two cores"


@cache
def find_experiments() -> dict[str, Experiment]:
    """Every experiment of training runs, by the name of its folder: those whose `sweep` has an `EXPERIMENT`."""
    found = {}
    for module in pkgutil.iter_modules(covshift.experiments.__path__, "covshift.experiments."):
        names = {inner.name for inner in pkgutil.iter_modules(_path(module.name))}
        if "sweep" in names:
            experiment = getattr(
                importlib.import_module(f"{module.name}.sweep"), "EXPERIMENT", None
            )
            if experiment is not None:
                found[experiment.name] = experiment
    return dict(sorted(found.items(), key=lambda item: (item[1].aliases or ("z",), item[0])))


def named_experiment(name: str) -> Experiment:
    """The experiment of this name or alias.

    Raises:
        InputError: there is none.
    """
    by_name = {
        key: experiment
        for experiment in find_experiments().values()
        for key in (experiment.name, *experiment.aliases)
    }
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=2, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"there is no experiment '{name}'{hint} (covshift experiments lists them)")
    return by_name[name]


def every_scale(arms: tuple[Arm, ...], iterations: int = 150) -> dict[str, tuple[Arm, ...]]:
    """The same arms at every scale, at the paper's for so many iterations."""
    length = {"num_updates": iterations * UPDATES_PER_ITERATION}
    at_paper = tuple(replace(arm, leaves={**arm.leaves, **length}) for arm in arms)
    return {"paper": at_paper, "small": arms, "smoke": arms}


def _path(name: str) -> Any:
    return getattr(importlib.import_module(name), "__path__", None) or []
