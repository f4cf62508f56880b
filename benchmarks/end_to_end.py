"""A whole training run: agent steps a second, and where the time goes.

    python benchmarks/end_to_end.py [--updates 1500] [--preset c51-corrected]
    python benchmarks/end_to_end.py --small [--updates 60000]

The first is a run with --data stream on ALE Pong: one update stands for 4 agent steps, which the collecting process makes
ahead of the learner. The second is a run of the scale small on MinAtar's Breakout with one thread, whose data are
collected first. The parts are timed within the one run, by wrapping what its loop calls.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covshift.config.presets import make_config
from covshift.config.training import UPDATE_STEPS, RuntimeOptions, TrainConfig
from covshift.data.collection import Collector
from covshift.records import RunFolder
from covshift.runs import replay, training
from covshift.runs.launch import ensure_dataset, start_or_resume


def timed(seconds: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    seconds[name] = 0.0

    def wrapped(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            seconds[name] += time.perf_counter() - start

    return wrapped


def streamed(preset: str, updates: int) -> TrainConfig:
    """A short run on ALE Pong that is evaluated three times."""
    return make_config(
        "ALE/Pong-v5",
        preset,
        "paper",
        num_updates=updates,
        warm_up=2_000,
        stream_shard=4_096,
        window=10_000_000,
        evaluate_every=max(1, updates // 2),
        evaluation_episodes=2,
        ratio_episodes=2,
        calibration_episodes=2,
        episode_cap=1_000,
    )


def collect(collector: Collector, folder: Path) -> None:
    collector.collect(progress=lambda _: None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, help="1500, or 60000 with --small, if not given")
    parser.add_argument("--preset", default="c51-corrected")
    parser.add_argument("--small", action="store_true", help="a run of the scale small on MinAtar")
    given = parser.parse_args()
    updates = given.updates or (60_000 if given.small else 1_500)
    if given.small:
        config = make_config("MinAtar/Breakout-v1", given.preset, "small", num_updates=updates)
    else:
        config = streamed(given.preset, updates)
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        began = time.perf_counter()
        data, runtime = "stream", RuntimeOptions(device="cpu")
        if given.small:
            data = str(ensure_dataset(config, place, collect))
            runtime = RuntimeOptions(device="cpu", threads=1)
        trainer = start_or_resume(RunFolder(place / "run"), config, data, runtime, print)
        seconds["start, with the first data"] = time.perf_counter() - began
        slots: list[tuple[Any, str, str]] = [
            (trainer.learner, "update", "networks"),
            (trainer.replay, "slide", "waiting for data, moving the window"),
            (trainer.evaluator, "evaluate", "evaluation"),
            (trainer, "save", "checkpoints"),
            (replay, "value_batch", "gathering transitions"),
            (replay, "ratio_batch", "gathering states"),
        ]
        for owner, attribute, name in slots:
            setattr(owner, attribute, timed(seconds, name, getattr(owner, attribute)))
        training.run_to_end(trainer, lambda update, row: None)
        total = time.perf_counter() - began
    print(f"{given.preset}, {config.env}, {updates} updates")
    for what, spent in (("all included", 0.0), ("without evaluation", seconds["evaluation"])):
        rate = updates / (total - spent)
        print(f"{UPDATE_STEPS * rate:,.0f} agent steps/s ({rate:.1f} updates/s), {what}")
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{spent / total:7.1%}  {name}")
    print(f"{1 - sum(seconds.values()) / total:7.1%}  the rest: drawing, priorities, rows")


if __name__ == "__main__":
    main()
