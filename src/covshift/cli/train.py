"""`covshift train`, `covshift resume`, `covshift evaluate`, `covshift watch` and `covshift runs`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from covshift.cli.arguments import optional
from covshift.config.environment import EnvOptions
from covshift.config.presets import PRESET_TEXTS, SCALE_TEXTS, make_config
from covshift.config.training import (
    DataOptions,
    EvaluationOptions,
    NetworkOptions,
    OptimizationOptions,
    RatioOptions,
    ReplayOptions,
    RuntimeOptions,
    TrainConfig,
    ValueOptions,
)
from covshift.extras import extras_of_env

if TYPE_CHECKING:
    from covshift.records import RunFolder
    from covshift.runs.training import Trainer


def _listed(texts: dict[str, str]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


@dataclass(frozen=True)
class Train:
    """Train a control policy from another policy's data: C51, with a learned covariate shift.

    The same command resumes a run that was interrupted. The defaults below are those of the preset and scale that the
    command names.
    """

    env: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="ENVIRONMENT")]
    """Environment: MinAtar/Breakout-v1, ALE/Pong-v5, covshift/FourRooms-v0, or any Gymnasium id with discrete actions."""

    out: Path
    """Folder of the run."""

    preset: Annotated[
        str, tyro.conf.arg(help_behavior_hint="", help=f"Method. {_listed(PRESET_TEXTS)}.")
    ] = "c51-corrected"

    scale: Annotated[
        str, tyro.conf.arg(help_behavior_hint="", help=f"Size. {_listed(SCALE_TEXTS)}.")
    ] = "small"

    data: Annotated[str | None, optional("DIR|stream|online")] = None
    """Folder of a dataset; or `stream` to collect ahead of the learner, which draws from a moving window; or `online`, where the agent collects these data itself as it learns. By default the scale's dataset is collected, or reused, under --data-root."""

    data_root: Path = Path("out/data")
    """Folder for the datasets that runs share."""

    seed: int = 0
    """Seed of the run: network, batches, evaluation."""

    environment: EnvOptions = field(default_factory=EnvOptions)
    collection: DataOptions = field(default_factory=DataOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    value: ValueOptions = field(default_factory=ValueOptions)
    ratio: RatioOptions = field(default_factory=RatioOptions)
    replay: ReplayOptions = field(default_factory=ReplayOptions)
    optimization: OptimizationOptions = field(default_factory=OptimizationOptions)
    evaluation: EvaluationOptions = field(default_factory=EvaluationOptions)
    runtime: RuntimeOptions = field(default_factory=RuntimeOptions)

    def config(self) -> TrainConfig:
        """What defines the run."""
        return TrainConfig(
            self.env,
            self.preset,
            self.scale,
            self.seed,
            self.environment,
            self.collection,
            self.network,
            self.value,
            self.ratio,
            self.replay,
            self.optimization,
            self.evaluation,
        )

    def extras(self) -> tuple[str, ...]:
        """The extras that training in this environment needs."""
        log = () if self.runtime.log == "none" else (self.runtime.log,)
        return (*extras_of_env(self.env), "torch", *log)

    def run(self) -> None:
        """Collects what is missing, trains, and says where the result is."""
        from covshift.records import RunFolder
        from covshift.runs.launch import ensure_dataset, start_or_resume

        config, folder = self.config(), RunFolder(self.out)
        if folder.exists() and folder.config() == config and _is_over(folder):
            return
        data = self.data or str(ensure_dataset(config, self.data_root, _collect))
        _train(start_or_resume(folder, config, data, self.runtime, print), self.runtime)


def parse_train(arguments: Sequence[str]) -> Train:
    """`covshift train` with the defaults of the preset and scale that the arguments name."""
    named = {
        name: _value_of(arguments, f"--{name}") or default
        for name, default in (("preset", "c51-corrected"), ("scale", "small"))
    }
    config = make_config("", **named)
    default = Train(
        env=tyro.MISSING,
        out=tyro.MISSING,
        preset=config.preset,
        scale=config.scale,
        environment=config.environment,
        collection=config.data,
        network=config.network,
        value=config.value,
        ratio=config.ratio,
        replay=config.replay,
        optimization=config.optimization,
        evaluation=config.evaluation,
    )
    return tyro.cli(
        Train,
        prog="covshift train",
        default=default,
        args=list(arguments),
        config=(tyro.conf.OmitArgPrefixes,),
    )


@dataclass(frozen=True)
class Resume:
    """Continue a run that was interrupted or killed; the result is the same as without the interruption."""

    run_folders: Annotated[tuple[Path, ...], tyro.conf.Positional, optional("RUN …")]
    """Folder of the run. If several are given, their agents are updated as one stack: they must have the same method
    and may differ in seed, data, learning rate, and the ratio's loss weight η and discount γ̂."""

    stacked: bool = False
    """Update a single run as a stack of one, which gives the same numbers to the bit as a larger stack."""

    policy_module: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """Module that the run's behavior policy may import; without it, a run folder never makes covshift import code. Repeat it for several."""

    def extras(self) -> tuple[str, ...]:
        """The extra that a run's network needs."""
        return ("torch",)

    def run(self) -> None:
        """Trains to the end."""
        from covshift.errors import InputError
        from covshift.records import RunFolder
        from covshift.runs.launch import resume_run
        from covshift.runs.stacks import resume_stack

        if not self.run_folders:
            raise InputError("no run folder was given: covshift resume RUN")
        folders = [folder for path in self.run_folders if not _is_over(folder := RunFolder(path))]
        if not folders:
            return
        if len(folders) > 1 or self.stacked:
            resume_stack(folders, print, self.policy_module)
            return
        trainer = resume_run(folders[0], None, print, self.policy_module)
        _train(trainer, folders[0].provenance()["runtime"])


@dataclass(frozen=True)
class Evaluate:
    """Play episodes with a run's policy and print its mean score."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""

    episodes: int = 100
    """Number of episodes; more of them give a surer mean."""

    epsilon: Annotated[float | None, optional("FLOAT")] = None
    """Probability ε of a random action; by default the run's evaluation_epsilon."""

    seed: int = 0
    """Seed of the episodes."""

    def extras(self) -> tuple[str, ...]:
        """The extra that a run's network needs."""
        return ("torch",)

    def run(self) -> None:
        """Prints the mean score with its interval, and the mean ratio."""
        from covshift.runs.playing import evaluate_run

        for word, text in evaluate_run(
            self.run_folder, self.episodes, self.epsilon, self.seed
        ).items():
            print(f"{word:15} {text}")


@dataclass(frozen=True)
class Watch:
    """Draw an episode of a run's policy as a GIF, with the value and c(s) beside the frame."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folder of the run."""

    out: Path
    """The file to write, ending in .gif."""

    epsilon: Annotated[float | None, optional("FLOAT")] = None
    """Probability ε of a random action; by default the run's target_epsilon, that of the policy whose ratio c is learned."""

    steps: int = 400
    """Largest number of agent steps to draw."""

    seed: int = 0
    """Seed of the episode."""

    def extras(self) -> tuple[str, ...]:
        """The extra that a run's network needs."""
        return ("torch",)

    def run(self) -> None:
        """Writes the file."""
        from covshift.report.pictures import draw_film
        from covshift.runs.playing import play_episode

        played = play_episode(self.run_folder, self.epsilon, self.steps, self.seed)
        draw_film(played.states, played.tracks, played.scores, self.out)
        print(f"{len(played.states)} steps, score {played.scores[-1]:g}: {self.out}")


@dataclass(frozen=True)
class Runs:
    """List the runs under a folder, or follow them live: environment, preset, seed, how far they are, newest score."""

    action: Annotated[Literal["list", "watch"], tyro.conf.Positional]
    """list: print them once; watch: show how they change until all have ended, or until Ctrl-C."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """Where to look, at any depth."""

    def run(self) -> None:
        """Prints one line per run, once or until all have ended."""
        from covshift.records import find_runs

        if self.action == "watch":
            from rich.console import Console

            from covshift.report.live import watch_runs

            watch_runs(Console(), self.folder)
            return
        rows = [run.summary(self.folder) for run in find_runs(self.folder)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = (text.ljust(width) for text, width in zip(row, widths, strict=True))
            print("  ".join(cells).rstrip())
        print(f"{len(rows)} runs under {self.folder}")


def _is_over(folder: RunFolder) -> bool:
    """Whether a run is finished, which is said; one that diverged is an error elsewhere."""
    status = folder.status()
    if status["status"] == "finished":
        print(
            f"{folder.path} is finished after {status['update']:,} updates; nothing is left to do"
        )
    return status["status"] == "finished"


def _value_of(arguments: Sequence[str], flag: str) -> str | None:
    found = None  # The last one counts, as for every option.
    for k, argument in enumerate(arguments):
        if argument == flag and k + 1 < len(arguments):
            found = arguments[k + 1]
        if argument.startswith(f"{flag}="):
            found = argument.removeprefix(f"{flag}=")
    return found


def _collect(collector: Any, folder: Path) -> None:
    from rich.console import Console

    from covshift.progress import counter

    request = collector.request
    print(f"Collecting {request.transitions:,} transitions of {request.env} into {folder}")
    with counter(Console(), "transitions", request.transitions) as advance:
        collector.collect(progress=advance)


def _train(trainer: Trainer, runtime: RuntimeOptions) -> None:
    from rich.console import Console

    from covshift.learners.deep import Diverged
    from covshift.records import support_warning
    from covshift.report.live import TrainingView
    from covshift.runs.training import run_to_end

    config, path = trainer.config, trainer.folder.path
    label = f"{config.env} · {config.preset} · {config.scale} · seed {config.seed} → {path}"
    view = TrainingView(Console(), label, trainer.update, config.optimization.num_updates)
    try:
        with view:
            run_to_end(trainer, view.tick, log=runtime.log)
    except Diverged as error:
        print(f"covshift: {path} diverged: {error}; its last checkpoint is kept", file=sys.stderr)
        sys.exit(1)
    warning = support_warning(trainer.folder.metrics())
    if warning:
        print(f"covshift: warning: {warning}", file=sys.stderr)
    print(f"The run: {path} (covshift evaluate {path}; covshift watch {path} --out {path}.gif)")
