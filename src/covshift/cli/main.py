"""The entry point `covshift`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

from covshift.errors import InputError
from covshift.version import __version__

TOUR = """Learn the covariate shift c(s) = d_π(s)/d_μ(s) by bootstrapping, and put it to work.

Data from a behavior policy μ show some states more often, and others less often, than a target
policy π would. c says by how much, state by state; discounted COP-TD (Gelada & Bellemare, 2019)
learns it from the data alone.

Start here:
  covshift demo --out out/demo        train from random play, with and without the correction: a page
  covshift theory --out out/theory    study the method: every theorem checked, a page with figures
  covshift collect MinAtar/Breakout-v1 --transitions 20000 --out out/breakout
                                      store what a random policy sees, with the odds of every action
  covshift data info out/breakout     what a dataset holds; verify, import, export
  covshift train MinAtar/Breakout-v1 --preset c51-corrected --scale smoke --out out/run
                                      learn to act from another policy's data; resume, evaluate, watch
  covshift estimate value out/breakout --policy uniform
                                      what a policy is worth, from such data; ratio: where it goes
  covshift runs list out              the runs that are there
  covshift experiments                every figure of the paper, and ours: claim and cost
  covshift reproduce figure-1-left --scale smoke --out out/figures
                                      data, runs, figure and page of one of them; covshift report joins them
  covshift train --help               what a command does and what can be set

covshift --version prints the version. The documentation is in docs/, the README starts it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command; bad input ends with one sentence and status 2, SIGTERM and a closed terminal are as Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores the latter.
            signal.signal(number, signal.default_int_handler)
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"covshift {__version__}")
        return
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
    try:
        if given[:1] == ["train"]:
            parse_train(given[1:]).run()
            return
        command = tyro.extras.subcommand_cli_from_dict(
            commands, prog="covshift", description=TOUR, args=given or ["--help"]
        )
        command.run()
    except InputError as error:
        _fail(str(error), 2)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        _fail(f"{place}{error.strerror or error}", 1)
    except KeyboardInterrupt as stop:
        how = "interrupted; what was finished is kept, and the same command goes on"
        _fail(str(stop) or how, 130)


def _fail(message: str, status: int) -> None:
    print(f"covshift: {message}", file=sys.stderr)
    sys.exit(status)
