"""A whole training run with --data stream on ALE Pong: agent steps a second, and where the time goes.

    python benchmarks/end_to_end.py [--updates 1500] [--preset c51-corrected]

One update stands for 4 agent steps, which the collecting process makes ahead of the learner. The parts are timed within
the one run, by wrapping what its loop calls.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from covshift.config.presets import make_config
from covshift.config.training import UPDATE_STEPS, RuntimeOptions
from covshift.records import RunFolder
from covshift.runs import replay, training
from covshift.runs.launch import start_or_resume


def timed(seconds: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    seconds[name] = 0.0

    def wrapped(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*given, **named)
        finally:
            seconds[name] += time.perf_counter() - start

    return wrapped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--updates", type=int, default=1500)
    parser.add_argument("--preset", default="c51-corrected")
    given = parser.parse_args()
    config = make_config(
        "ALE/Pong-v5",
        given.preset,
        "paper",
        num_updates=given.updates,
        warm_up=2_000,
        stream_shard=4_096,
        window=10_000_000,
        evaluate_every=max(1, given.updates // 2),
        evaluation_episodes=2,
        ratio_episodes=2,
        episode_cap=1_000,
    )
    seconds: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        trainer = start_or_resume(
            RunFolder(Path(folder) / "run"), config, "stream", RuntimeOptions(device="cpu"), print
        )
        ready = time.perf_counter() - began
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
        began = time.perf_counter()
        training.run_to_end(trainer, lambda update, row: None)
        total = time.perf_counter() - began
    steps = UPDATE_STEPS * given.updates
    print(f"{given.preset}, ALE/Pong-v5, --data stream, {given.updates} updates")
    print(f"start: {ready:.1f} s until the first shard is there")
    print(
        f"{steps / total:,.0f} agent steps/s ({given.updates / total:.1f} updates/s), all included"
    )
    learning = total - seconds["evaluation"]
    print(f"{steps / learning:,.0f} agent steps/s without evaluation")
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{spent / total:7.1%}  {name}")
    print(f"{1 - sum(seconds.values()) / total:7.1%}  the rest: drawing, priorities, rows")


if __name__ == "__main__":
    main()
