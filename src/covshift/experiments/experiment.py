"""What every experiment offers, and the list of all experiments.

Nothing heavy is imported here or by the modules that define experiments, so that listing them is fast: an experiment
imports what it computes with when it is run.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, final

import covshift.experiments
from covshift.errors import InputError
from covshift.files import check_folder

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console


@final
@dataclass(frozen=True)
class RunOptions:
    """What `covshift reproduce` can set for any experiment.

    Args:
        scale: `paper`, `small` or `smoke`.
        seeds: runs of each arm; None for the experiment's own number.
        workers: processes at a time on this machine.
        stack: most runs that a process updates as one stack.
        engine: `local` or `ray`.
        ray_address: address of a Ray cluster; None starts Ray on this machine.
        set: settings to change in every arm, each as `key=value`.
        arm: arms to add, each as `name:key=value,…`.
    """

    scale: str = "small"
    seeds: int | None = None
    workers: int = 2
    engine: str = "local"
    ray_address: str | None = None
    stack: int = 8
    set: tuple[str, ...] = ()
    arm: tuple[str, ...] = ()

    def changed(self) -> list[str]:
        """Names of the options that differ from their defaults, other than the scale."""
        default = RunOptions(self.scale)
        names = ("seeds", "workers", "engine", "ray_address", "stack", "set", "arm")
        return [name for name in names if getattr(self, name) != getattr(default, name)]


class Outcome(NamedTuple):
    """What running an experiment gave.

    Attributes:
        page: the page to open in a browser.
        text: one sentence about the result, for the terminal; may be empty.
        failure: what should have held and did not; makes the command end with status 1.
        banner: a warning to read before the result; may be empty.
    """

    page: Path
    text: str = ""
    failure: str = ""
    banner: str = ""


class Experiment(Protocol):
    """An experiment as `covshift experiments` and `covshift reproduce` see it."""

    @property
    def name(self) -> str:
        """The name of its module, and of its folder of results."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """The figures of the paper that it reproduces."""

    @property
    def title(self) -> str:
        """A few words."""

    @property
    def claim(self) -> str:
        """What is checked, in one sentence."""

    def cost(self, scale: str) -> str:
        """Roughly how much there is to compute, and how long it takes."""

    def extras(self, scale: str) -> tuple[str, ...]:
        """The extras of covshift that it needs at a scale."""

    def run(self, out: Path, options: RunOptions, console: Console) -> Outcome:
        """Computes what is missing and writes the results into the folder `name` under `out`.

        Raises:
            InputError: the experiment does not have this scale, or has no use for an option that was given.
        """


StudyFunction = Callable[["Path", RunOptions, "Console"], Outcome]
"""Writes a study into a folder."""


@final
@dataclass(frozen=True)
class Study:
    """An experiment with a page of its own.

    Args:
        name: the name of its package.
        title: a few words.
        claim: what is checked, in one sentence.
        costs: for each scale that it has, how long it takes.
        function: `module:function` that computes everything and writes it into a folder, as `StudyFunction` says;
            imported when the study is run.
        uses: names of the `RunOptions` that it has a use for, beside the scale.
        aliases: the figures of the paper that it reproduces.
        needs: the extras of covshift that it needs.
    """

    name: str
    title: str
    claim: str
    costs: Mapping[str, str]
    function: str
    uses: Collection[str] = ()
    aliases: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def cost(self, scale: str) -> str:
        """How long it takes."""
        return self.costs.get(scale) or lacks_scale(scale, self.costs)

    def extras(self, scale: str) -> tuple[str, ...]:
        """The extras that it needs, at every scale."""
        return self.needs

    def run(self, out: Path, options: RunOptions, console: Console) -> Outcome:
        """Writes the study into its folder under `out`."""
        check_scale(self.name, options.scale, self.costs)
        unused = [name for name in options.changed() if name not in self.uses]
        if unused:
            flags = " and ".join(f"--{name.replace('_', '-')}" for name in unused)
            raise InputError(f"{self.name} has no use for {flags}; leave out what it does not use")
        write: StudyFunction = pkgutil.resolve_name(self.function)
        return write(out / self.name, options, console)


def lacks_scale(scale: str, known: Collection[str]) -> str:
    """What stands in the place of a cost."""
    return f"not at the scale {scale}, only {' and '.join(known)}"


def check_scale(name: str, scale: str, known: Collection[str]) -> None:
    """Raises an `InputError` unless the experiment of this name has the scale."""
    if scale not in known:
        raise InputError(f"{name} has no scale '{scale}'; choose {' or '.join(known)}")


def ensure_folder(folder: Path) -> None:
    """Makes a folder unless it exists.

    Raises:
        InputError: there is a file of this name.
    """
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)


@cache
def find_experiments() -> dict[str, Experiment]:
    """Every experiment by name, the figures of the paper first: modules of this room that define `EXPERIMENT`."""
    found: list[Experiment] = []
    for module in pkgutil.iter_modules(covshift.experiments.__path__, "covshift.experiments."):
        experiment = getattr(importlib.import_module(module.name), "EXPERIMENT", None)
        if experiment is not None:
            found.append(experiment)
    found.sort(key=lambda experiment: (experiment.aliases or ("~",), experiment.name))
    return {experiment.name: experiment for experiment in found}


def named_experiment(name: str) -> Experiment:
    """The experiment of this name or alias, however it is spelled; `figure1` is the first part of Figure 1.

    Raises:
        InputError: there is none.
    """
    by_name = {
        key: experiment
        for experiment in find_experiments().values()
        for key in (experiment.name, *experiment.aliases)
    }
    plain = {_plain(key): key for key in sorted(by_name, reverse=True)}
    wanted = re.sub(r"^fig(ure)?(?=\d)", "figure", _plain(name))
    if re.fullmatch(r"figure\d", wanted):
        wanted = min((key for key in plain if key.startswith(wanted)), default=wanted)
    if wanted not in plain:
        near = difflib.get_close_matches(name, by_name, n=2, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise InputError(f"there is no experiment '{name}'{hint} (covshift experiments lists them)")
    return by_name[plain[wanted]]


def _plain(name: str) -> str:
    """A name without what spellings differ in: case, dashes, underscores, blanks, dots."""
    return re.sub(r"[-_. ]", "", name.lower())
