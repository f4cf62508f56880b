"""The entry point `covshift`."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from covshift.errors import InputError
from covshift.extras import require
from covshift.version import __version__

TYPE_CHECKING = (
    False  # Ctrl-C ends in a traceback until `main` runs, and importing typing takes long.
)
if TYPE_CHECKING:
    from typing import Any

TOUR = """Learn the covariate shift c(s) = d_π(s)/d_μ(s) by bootstrapping, and put it to work.

Data from a behavior policy μ show some states more often, and others less often, than a target
policy π would. The ratio c says by how much, for each state. Discounted COP-TD (Gelada & Bellemare,
2019) learns it from the data alone.

Start here:
  covshift demo --out out/demo        train from random play, without and with the correction, and
                                      write a page about the result
  covshift theory --out out/theory    check every theorem and write a page with figures
  covshift collect MinAtar/Breakout-v1 --transitions 20000 --out out/breakout
                                      record a random policy's play, with the probability of each action
  covshift data info out/breakout     describe a dataset; also verify, import, export
  covshift train MinAtar/Breakout-v1 --preset c51-corrected --scale smoke --out out/run
                                      learn to act from another policy's data; also resume, evaluate, watch
  covshift estimate value out/breakout --policy uniform
                                      estimate a policy's value from such data; ratio: the states it visits
  covshift runs list out              list the runs under a folder; covshift runs watch follows them
  covshift experiments                list the experiments: every figure of the paper, and our own
  covshift reproduce figure-1-left --scale smoke --out out/figures
                                      run an experiment, say the verdict and write its figure; --set and
                                      --arm change one thing; covshift report joins figures
  covshift train --help               explain a command and its options

covshift --version prints the version. The documentation is in docs/; start with the README."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command.

    Bad input ends with one sentence and status 2. SIGTERM and a closed terminal act like Ctrl-C.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    with _ending_with_the_reader():
        if given == ["--version"]:
            print(f"covshift {__version__}")
        else:
            _run(given)


def _run(given: list[str]) -> None:
    name = given[0] if given else ""
    try:
        # Nothing has been written yet. Libraries swallow a KeyboardInterrupt while they are imported.
        with _leaving_at_once():
            if os.environ.get("COVSHIFT_LIFELINE"):
                from covshift.runs.signals import end_with_parent

                end_with_parent()
            command = _parse(given)
            _prepare(name, command)
        command.run()
    except InputError as error:
        _fail(str(error), 2)
    except MemoryError as error:
        _fail(f"not enough memory: {error}" if str(error) else "not enough memory", 1)
    except (RuntimeError, ImportError) as error:
        # As torch and the loader of libraries say it.
        if not any(words in str(error) for words in _LACKS_MEMORY):
            raise
        _fail(f"not enough memory: {str(error).splitlines()[0]}", 1)
    except BrokenPipeError:
        raise
    except OSError as error:
        file = f"{error.filename}: " if error.filename else ""
        _fail(f"{file}{error.strerror or error}", 1)
    except KeyboardInterrupt as stop:
        kept = "; finished work is kept, and the same command continues"
        _fail(str(stop) or f"interrupted{kept if name in _CONTINUES else ''}", 130)


@contextmanager
def _ending_with_the_reader() -> Iterator[None]:
    """Ends the process silently, as other tools do, when nobody reads its output any more, as after `| head`."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        # Python flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            _fail(f"the output cannot be written: {error.strerror}", 1)
        sys.exit(128 + signal.SIGPIPE)


def _parse(given: list[str]) -> Any:
    import tyro

    from covshift.cli.collect import Collect
    from covshift.cli.data import Data
    from covshift.cli.demo import Demo
    from covshift.cli.estimate import Estimate
    from covshift.cli.report import Report
    from covshift.cli.reproduce import Experiments, Reproduce
    from covshift.cli.theory import Theory
    from covshift.cli.train import Evaluate, Resume, Runs, Train, Watch, parse_train

    commands: dict[str, Callable[..., Any]] = {
        "demo": Demo,
        "train": Train,
        "resume": Resume,
        "evaluate": Evaluate,
        "watch": Watch,
        "runs": Runs,
        "experiments": Experiments,
        "reproduce": Reproduce,
        "collect": Collect,
        "data": Data,
        "estimate": Estimate,
        "report": Report,
        "theory": Theory,
    }
    if given[:1] == ["train"]:
        return parse_train(given[1:])
    return tyro.extras.subcommand_cli_from_dict(
        commands, prog="covshift", description=TOUR, args=given or ["--help"]
    )


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """Ends the process with a sentence on Ctrl-C, SIGTERM or a closed terminal; after the block these raise."""

    def leave(number: int, frame: object) -> None:
        os.write(2, b"covshift: interrupted before anything was done\n")
        os._exit(130)

    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    # Not in threads, where no signal arrives; nohup has SIGHUP ignored.
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    ours = [n for n in numbers if signal.getsignal(n) in _USUAL]
    try:
        for number in ours:
            signal.signal(number, leave)
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.default_int_handler)


_USUAL = (signal.SIG_DFL, signal.default_int_handler)

_CONTINUES = ("train", "resume", "collect", "reproduce", "demo")
"""Commands that continue where they were interrupted."""

_LACKS_MEMORY = ("allocate memory", "out of memory", "failed to map segment")

_HEAVY = {
    "train": ("covshift.runs.launch",),
    "resume": ("covshift.runs.launch",),
    "evaluate": ("covshift.runs.playing",),
    "watch": ("covshift.runs.playing",),
    "runs": ("covshift.records",),
    "collect": ("covshift.data.collection",),
    "data": ("covshift.data.import_export",),
    "estimate": ("covshift.estimation",),
    "experiments": ("covshift.experiments.experiment",),
    "reproduce": ("covshift.experiments.experiment",),
    "report": ("covshift.report.figures_page",),
    "theory": ("covshift.experiments.theory.study",),
}
"""Modules that a command needs and that take long to import; commands that train agents import `covshift.runs` too."""


def _prepare(name: str, command: Any) -> None:
    """Imports what takes long, after a check that every package that the command needs is installed."""
    extras = command.extras() if hasattr(command, "extras") else ()
    require(*extras)
    for module in _HEAVY.get(name, ()):
        importlib.import_module(module)
    if "torch" in extras:
        importlib.import_module("covshift.runs.launch")


def _fail(message: str, status: int) -> None:
    print(f"covshift: {message}", file=sys.stderr)
    sys.exit(status)
