"""Updates a second of the agent, sampling included, beside a plain eager C51 and this machine's own limit.

    python benchmarks/update.py [--rounds 9] [--dopamine PYTHON]

Every side takes a few updates in turn, round after round, and medians are given, because machines are shared. The
peer is C51 as one writes it first: raw frames in memory, torch's default layout, its default Adam, one batch of 32,
no correction. With --dopamine, the Python of an environment that has dopamine-rl, its JAX C51 takes part too.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from covshift.config.presets import make_config
from covshift.config.training import RuntimeOptions, TrainConfig, ValueOptions
from covshift.data.collection import Request, collect
from covshift.data.samplers import PrioritizedSampler, UniformSampler
from covshift.data.store import Store
from covshift.learners.deep import ratio_batch, value_batch
from covshift.records import RunFolder
from covshift.runs.launch import start_or_resume
from covshift.runs.training import Trainer

GAMES = {"Nature": ("ALE/Pong-v5", 20_000), "MinAtar": ("MinAtar/Breakout-v1", 100_000)}
BATCH, ATOMS = 32, 51
THREADS = torch.get_num_threads()
"""Of every side."""


class PlainC51:
    """The peer: nothing but what torch does by default."""

    def __init__(self, store: Store) -> None:
        ids = np.flatnonzero(store.is_transition)[:4000]
        self.batch = value_batch(store, ids, ValueOptions())
        self.num_actions = store.num_actions
        self.online, self.target = self._network(store), self._network(store)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=2.5e-4, eps=0.01 / 32)
        self.support = torch.linspace(-10, 10, ATOMS)
        self.rng = np.random.default_rng(0)

    def _network(self, store: Store) -> nn.Sequential:
        outputs = self.num_actions * ATOMS
        if len(store.state_shape) == 3 and store.stack > 1:
            return nn.Sequential(
                nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
                nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(),
                nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, outputs),
            )  # fmt: skip
        planes = store.state_shape[-1]
        return nn.Sequential(
            nn.Conv2d(planes, 16, 3), nn.ReLU(), nn.Flatten(),
            nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, outputs),
        )  # fmt: skip

    def _states(self, states: Any) -> Tensor:
        x = torch.from_numpy(states).float()
        return x / 255.0 if x.shape[-1] == 84 else x.permute(0, 3, 1, 2)

    def step(self) -> None:
        """One uncorrected update."""
        k = self.rng.integers(len(self.batch.a_tm1), size=BATCH)
        b, z = self.batch, self.support
        reward, discount = torch.from_numpy(b.return_t[k]), torch.from_numpy(b.discount_t[k])
        with torch.no_grad():
            p = self.target(self._states(b.s_t[k])).view(BATCH, -1, ATOMS).softmax(-1)
            p = p[torch.arange(BATCH), (p * z).sum(-1).argmax(-1)]
            place = ((reward[:, None] + discount[:, None] * z).clamp(-10, 10) + 10) / 0.4
            low, high = place.floor().long(), place.ceil().long()
            same = (low == high).float()
            target = torch.zeros(BATCH, ATOMS)
            target.scatter_add_(1, low, p * (high - place + same))
            target.scatter_add_(1, high, p * (place - low))
        logits = self.online(self._states(b.s_tm1[k])).view(BATCH, -1, ATOMS)
        chosen = logits[torch.arange(BATCH), torch.from_numpy(b.a_tm1[k])]
        loss = -(target * F.log_softmax(chosen, -1)).sum(-1).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


class Covshift:
    """A run of ours, stepped by its own loop."""

    def __init__(self, config: TrainConfig, data: Path, out: Path) -> None:
        self.trainer: Trainer = start_or_resume(
            RunFolder(out), config, str(data), RuntimeOptions(device="cpu", threads=THREADS), print
        )
        self._ticks = self.trainer.run()
        next(self._ticks)

    def step(self) -> None:
        """One update, sampling and priorities included."""
        next(self._ticks)


class DataAlone:
    """What a corrected update does besides computing: draw, gather, renew priorities."""

    def __init__(self, store: Store, config: TrainConfig) -> None:
        rng = np.random.default_rng(0)
        self.store, self.config = store, config
        self.states = UniformSampler(store.is_state, rng)
        self.transitions = PrioritizedSampler(store.is_transition, rng, len(store))
        self.transitions.slide(0, len(store))

    def step(self) -> None:
        """The data's part of one update."""
        ids = self.transitions.sample(BATCH)
        value_batch(self.store, ids, self.config.value)
        ratio_batch(self.store, self.states.sample(BATCH), self.config.ratio)
        self.transitions.update(ids, np.random.default_rng(1).random(BATCH))


class Apart:
    """A peer in a process of its own, where nothing that we set reaches it; an update for every line."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == "ready"

    def step(self) -> None:
        """One update there."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        self.process.stdout.readline()


def answer(data: str) -> None:
    """The other side of `Apart` for the plain peer."""
    peer = PlainC51(Store.open(data))
    print("ready", flush=True)
    for _ in sys.stdin:
        peer.step()
        print("done", flush=True)


def matmul_rate() -> float:
    """GFLOP/s of a large float32 product."""
    a = torch.randn(1536, 1536)
    start = time.perf_counter()
    for _ in range(4):
        a @ a
    return 4 * 2 * 1536**3 / (time.perf_counter() - start) / 1e9


def flops(corrected: bool) -> float:
    """Of an update on the Nature network: a pass back costs two passes forth, but for the first layer's input."""
    first = 2 * 20 * 20 * 32 * 4 * 64
    convolutions = first + 2 * 9 * 9 * 64 * 32 * 16 + 2 * 7 * 7 * 64 * 64 * 9
    value_head = 2 * 3136 * 512 + 2 * 512 * 6 * ATOMS
    ratio_head = 2 * 3136 * 512
    batches = 2 if corrected else 1
    total = batches * BATCH * (4 * convolutions - first)
    total += BATCH * ((3 + batches) * value_head + (corrected and 5 * ratio_head))
    return float(total)


def interleave(
    sides: dict[str, Callable[[], None]], rounds: int, counts: dict[str, int]
) -> dict[str, float]:
    """Median updates a second of each side."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for name, step in sides.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                step()
            if number:  # the first round warms up
                rates[name].append(counts[name] / (time.perf_counter() - start))
    return {name: statistics.median(values) for name, values in rates.items()}


def measure(kind: str, rounds: int, place: Path, dopamine: str | None) -> None:
    env, transitions = GAMES[kind]
    data = collect(Request(env, transitions), place / kind, progress=lambda _: None)
    store = Store.open(data)
    quiet = {
        "evaluate_every": 10**9,
        "evaluation_episodes": 1,
        "ratio_episodes": 1,
        "episode_cap": 5,
    }
    configs = {p: make_config(env, p, "small", **quiet) for p in ("c51", "c51-corrected")}
    plain = Apart(sys.executable, __file__, "--peer", str(data))
    sides: dict[str, Callable[[], None]] = {"plain eager torch, c51": plain.step}
    if dopamine and kind == "Nature":
        script = str(Path(__file__).with_name("update_dopamine.py"))
        sides["dopamine-rl (JAX), c51"] = Apart(dopamine, script).step
    peers = list(sides)
    for preset, config in configs.items():
        sides[f"covshift, {preset}"] = Covshift(config, data, place / f"{kind}-{preset}").step
    sides["data and priorities alone"] = DataAlone(store, configs["c51-corrected"]).step
    limit = []
    many = 12 if kind == "Nature" else 150
    rates = interleave(sides, rounds, dict.fromkeys(sides, many))
    for _ in range(5):
        limit.append(matmul_rate())
    best = max(rates[name] for name in peers)
    print(f"\n{kind} network, {env}, batches of {BATCH}, {THREADS} threads")
    print(f"{'':28} updates/s  of the fastest peer")
    for name, rate in rates.items():
        if name != "data and priorities alone":
            print(f"{name:28} {rate:9.1f}  {rate / best:.2f}")
    share = rates["covshift, c51-corrected"] / rates["data and priorities alone"]
    print(f"data and priorities: {share:.1%} of a corrected update")
    if kind == "Nature":
        peak = statistics.median(limit)
        for preset in configs:
            reached = rates[f"covshift, {preset}"] * flops(preset != "c51") / 1e9
            print(
                f"{preset}: {reached:.0f} GFLOP/s of {peak:.0f} in a large product: {reached / peak:.0%}"
            )


def two_runs(rounds: int, place: Path) -> None:
    """Two corrected MinAtar runs at once, a thread each."""
    env, transitions = GAMES["MinAtar"]
    data = collect(Request(env, transitions), place / "MinAtar", progress=lambda _: None)
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, "--worker", str(data), str(place / f"two-{k}"), str(rounds)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for k in range(2)
    ]
    rates = [float(process.communicate()[0]) for process in processes]
    print(
        f"\nTwo corrected MinAtar runs at once, one thread each: {sum(rates):.0f} updates/s in all"
    )


def work(data: str, out: str, rounds: int) -> None:
    torch.set_num_threads(1)
    env, _ = GAMES["MinAtar"]
    quiet = {
        "evaluate_every": 10**9,
        "evaluation_episodes": 1,
        "ratio_episodes": 1,
        "episode_cap": 5,
    }
    run = Covshift(make_config(env, "c51-corrected", "small", **quiet), Path(data), Path(out))
    rates = interleave({"run": run.step}, rounds, {"run": 300})
    print(rates["run"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dopamine", help="Python of an environment with dopamine-rl")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peer:
        answer(given.peer)
        return
    if given.worker:
        work(given.worker[0], given.worker[1], int(given.worker[2]))
        return
    with tempfile.TemporaryDirectory() as folder:
        for kind in GAMES:
            measure(kind, given.rounds, Path(folder), given.dopamine)
        two_runs(given.rounds, Path(folder))


if __name__ == "__main__":
    main()
