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
  covshift runs list out              list the runs under a folder
  covshift experiments                list the experiments: every figure of the paper, and our own
  covshift reproduce figure-1-left --scale smoke --out out/figures
                                      run an experiment and write its figure; covshift report joins figures
  covshift train --help               explain a command and its options

covshift --version prints the version. The documentation is in docs/; start with the README."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs one command.

    Bad input ends with one sentence and status 2. SIGTERM and a closed terminal act like Ctrl-C.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has the latter ignored.
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
        file = f"{error.filename}: " if error.filename else ""
        _fail(f"{file}{error.strerror or error}", 1)
    except KeyboardInterrupt as stop:
        usual = "interrupted; finished work is kept, and the same command continues"
        _fail(str(stop) or usual, 130)


def _fail(message: str, status: int) -> None:
    print(f"covshift: {message}", file=sys.stderr)
    sys.exit(status)
