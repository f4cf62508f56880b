"""Prioritized sampling, reading and priority updates, ours beside the peers that are installed.

    python benchmarks/replay_speed.py [--data DIR] [--rows 100000 1000000 10000000] [--repeats 200]

Without --data, 131 072 transitions of ALE Pong are collected once under out/benchmarks. Larger stores repeat the
collected shards by reference. Peers need an environment of their own:

    python -m venv peers && peers/bin/pip install -c constraints.txt -e '.[games]' cpprb torchrl dopamine-rl
    peers/bin/python benchmarks/replay_speed.py

Sides alternate within each size, and medians of CPU time are printed, which other load on the machine spoils least. "Tree"
is drawing and updating priorities alone; "all" adds the stacked states of the batch, which we and Dopamine decompress and
cpprb copies from raw frames (both only at 10⁵ rows, since 10⁶ would take them gigabytes and minutes).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from covshift.data.collection import Request, collect
from covshift.data.manifest import read_codec, read_manifest
from covshift.data.samplers import PrioritizedSampler
from covshift.data.store import Store
from covshift.data.sum_tree import SumTree

Side = Callable[[int], None]


def our_tree(rows: int, rng: np.random.Generator) -> Side:
    tree = SumTree(rows)
    tree.set(np.arange(rows), rng.random(rows))

    def side(batch: int) -> None:
        ids = tree.draw((np.arange(batch) + rng.random(batch)) / batch)
        tree.set(ids, rng.random(batch))

    return side


def our_replay(rows: int, rng: np.random.Generator, folder: Path) -> Side:
    manifest = read_manifest(folder)
    paths = [folder / shard["file"] for shard in manifest["shards"]]
    copies = -(-rows // manifest["totals"]["rows"])
    stack, actions = manifest["observation"]["stack"], manifest["num_actions"]
    store = Store.of_shards(paths * copies, read_codec(folder, manifest), stack, actions)
    sampler = PrioritizedSampler(store.is_transition, rng, rows)
    sampler.slide(0, rows)
    sampler.update(np.arange(rows), rng.random(rows))

    def side(batch: int) -> None:
        ids = sampler.sample(batch)
        store.pairs(ids, ids + 1)
        sampler.update(ids, rng.random(batch))

    return side


def cpprb_tree(rows: int, rng: np.random.Generator) -> Side:
    import cpprb

    buffer = cpprb.PrioritizedReplayBuffer(rows, {"x": {"shape": 1}}, alpha=1.0)
    for start in range(0, rows, 100_000):
        count = min(100_000, rows - start)
        buffer.add(x=np.zeros(count), priorities=rng.random(count))

    def side(batch: int) -> None:
        ids = buffer.sample(batch, beta=0.0)["indexes"]
        buffer.update_priorities(ids, rng.random(batch))

    return side


def cpprb_replay(rows: int, rng: np.random.Generator) -> Side:
    import cpprb

    shape = {"shape": (84, 84, 4), "dtype": np.uint8}
    fields = {"obs": shape, "act": {}, "rew": {}, "done": {}}
    buffer = cpprb.PrioritizedReplayBuffer(
        rows, fields, next_of="obs", stack_compress="obs", alpha=1.0
    )
    frame = np.zeros((84, 84, 4), np.uint8)
    for _ in range(rows):
        buffer.add(obs=frame, act=0, rew=0, next_obs=frame, done=0, priorities=rng.random())

    def side(batch: int) -> None:
        ids = buffer.sample(batch, beta=0.0)["indexes"]
        buffer.update_priorities(ids, rng.random(batch))

    return side


def dopamine_replay(rows: int, rng: np.random.Generator, folder: Path) -> Side:
    """Dopamine's replay, which keeps each stacked transition compressed by snappy, with the same frames as ours."""
    from dopamine.jax.replay_memory import accumulator, elements, replay_buffer, samplers

    store = Store.open(folder)
    buffer = replay_buffer.ReplayBuffer(
        accumulator.TransitionAccumulator(stack_size=4, update_horizon=1, gamma=0.99),
        samplers.PrioritizedSamplingDistribution(seed=0, max_capacity=rows),
        batch_size=32,
        max_capacity=rows,
    )
    for start in range(0, rows, 4096):
        some = np.arange(start, min(start + 4096, rows)) % len(store)
        ended = store.columns["action"][some] < 0
        for frame, end in zip(store.observations(some), ended, strict=True):
            step = elements.TransitionElement(frame, 0, 0.0, bool(end), bool(end))
            buffer.add(step, priority=rng.random())

    def side(batch: int) -> None:
        _, drawn = buffer.sample(batch, with_sample_metadata=True)
        buffer.update(drawn.keys, priorities=rng.random(batch))

    return side


def torchrl_tree(rows: int, rng: np.random.Generator) -> Side:
    import torch
    from torchrl.data import LazyTensorStorage, ReplayBuffer
    from torchrl.data.replay_buffers.samplers import PrioritizedSampler as TorchSampler

    buffer: Any = ReplayBuffer(
        storage=LazyTensorStorage(rows), sampler=TorchSampler(rows, alpha=1.0, beta=0.0)
    )
    for start in range(0, rows, 100_000):
        buffer.extend(torch.zeros(min(100_000, rows - start), 1))
    buffer.update_priority(torch.arange(rows), torch.tensor(rng.random(rows)))

    def side(batch: int) -> None:
        _, info = buffer.sample(batch, return_info=True)
        buffer.update_priority(info["index"], torch.tensor(rng.random(batch)))

    return side


def sides(rows: int, folder: Path) -> dict[str, Side]:
    """Every side that is installed and fits into memory."""
    rng = np.random.default_rng(0)
    found: dict[str, Side] = {"tree, covshift": our_tree(rows, rng)}
    for name, make in (("tree, cpprb", cpprb_tree), ("tree, torchrl", torchrl_tree)):
        try:
            found[name] = make(rows, rng)
        except (ImportError, RuntimeError) as error:  # torchrl's tree needs its compiled extension
            print(f"no side '{name}': {error}", file=sys.stderr)
    found["all, covshift"] = our_replay(rows, rng, folder)
    if rows <= 100_000:
        with suppress(ImportError):
            found["all, cpprb, raw frames"] = cpprb_replay(rows, rng)
        with suppress(ImportError):
            found["all, dopamine-rl, snappy"] = dopamine_replay(rows, rng, folder)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, default=Path("out/benchmarks/pong"))
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--repeats", type=int, default=200)
    options = parser.parse_args()
    if not (options.data / "checksums.sha256").is_file():
        collect(Request("ALE/Pong-v5", 131_072), options.data)

    print(
        "Microseconds of CPU time (medians)\n\n| rows | side | batch of 32 | batch of 64 |\n|---:|---|---:|---:|"
    )
    for rows in options.rows:
        ready = sides(rows, options.data)
        times: dict[tuple[str, int], list[float]] = {(n, b): [] for n in ready for b in (32, 64)}
        for repeat in range(options.repeats + 5):
            for (name, batch), values in times.items():
                start = time.process_time()
                ready[name](batch)
                if repeat >= 5:
                    values.append(1e6 * (time.process_time() - start))
        for name in ready:
            cells = " | ".join(f"{median(times[name, batch]):,.0f}" for batch in (32, 64))
            print(f"| {rows:,} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
