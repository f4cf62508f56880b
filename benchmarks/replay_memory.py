"""Bytes per frame, the projected size of ten million frames, and the memory that a store takes.

    python benchmarks/replay_memory.py [--frames 40000] [--pong 1000000]

First, for the paper's five games, frames of random play under a dictionary that was trained on other episodes, as
`collect` does it, and what 10⁷ of them take. Then a dataset of at least a million Pong frames: its files, and the
resident memory of a process that has opened it and drawn from all of it. It is collected once under out/benchmarks and
takes several minutes. The peers' sizes follow from their documented layouts: one raw uint8 frame per row (Dopamine), or
two stacks of four (a plain buffer). cpprb with stack_compress and next_of is measured with 10⁵ rows if it is installed,
in an environment of its own (see replay_speed.py).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from covshift.data.collection import Request, collect
from covshift.data.manifest import read_manifest
from covshift.data.store import Store

GAMES = ("Asterix", "Breakout", "Pong", "Seaquest", "SpaceInvaders")
FRAME = 84 * 84
TEN_MILLION = 10**7


def folder_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def resident(folder: Path) -> tuple[float, float]:
    """MiB of private memory, and of mapped files, that drawing from all of a store adds."""
    before = status()
    store = Store.open(folder)
    rows = np.flatnonzero(store.is_transition)
    rng = np.random.default_rng(0)
    for _ in range(len(rows) // 64):
        ids = rng.choice(rows, 64)
        store.pairs(ids, ids + 1)
    after = status()
    return after["RssAnon"] - before["RssAnon"], after["RssFile"] - before["RssFile"]


def cpprb_bytes(rows: int = 100_000) -> float:
    """Bytes per row that cpprb's prioritized buffer of stacked frames takes in memory."""
    import cpprb

    before = status()
    stack = {"shape": (84, 84, 4), "dtype": np.uint8}
    fields = {"obs": stack, "act": {}, "rew": {}, "done": {}}
    buffer = cpprb.PrioritizedReplayBuffer(rows, fields, next_of="obs", stack_compress="obs")
    frames = np.random.default_rng(0).integers(0, 256, (84, 84, 4), dtype=np.uint8)
    for _ in range(rows):
        buffer.add(obs=frames, act=0, rew=0, next_obs=frames, done=0)
    after = status()
    return (after["RssAnon"] - before["RssAnon"]) * 2**20 / rows


def status() -> dict[str, float]:
    """Resident memory of this process in MiB, by kind."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines if "Rss" in line}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--frames", type=int, default=40_000)
    parser.add_argument("--pong", type=int, default=1_000_000)
    parser.add_argument("--resident", type=Path, help="measure one dataset and print two numbers")
    options = parser.parse_args()
    if options.resident:
        print(*resident(options.resident))
        return

    print("| game | bytes per row, all columns | 10 M rows, GB | raw frames, GB | two stacks, GB |")
    print("|---|---:|---:|---:|---:|")
    for game in GAMES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            collect(Request(f"ALE/{game}-v5", options.frames), folder)
            each = folder_bytes(folder) / read_manifest(folder)["totals"]["rows"]
        print(
            f"| {game} | {each:.0f} | {each * TEN_MILLION / 1e9:.2f} | {FRAME * TEN_MILLION / 1e9:.1f} "
            f"| {8 * FRAME * TEN_MILLION / 1e9:.0f} |",
            flush=True,
        )

    folder = Path(f"out/benchmarks/pong-{options.pong}")
    collect(Request("ALE/Pong-v5", options.pong), folder)
    command = [sys.executable, __file__, "--resident", str(folder)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    own, mapped = (float(value) for value in output.split())
    rows = read_manifest(folder)["totals"]["rows"]
    print(f"\n{rows:,} rows of Pong: {folder_bytes(folder) / 1e6:,.0f} MB in files,", end=" ")
    print(
        f"{own:,.0f} MiB of memory, {mapped:,.0f} MiB of mapped files after a draw from all of it"
    )
    print(f"The same frames raw: {rows * FRAME / 1e6:,.0f} MB")
    try:
        each = cpprb_bytes()
    except ImportError as error:
        print(f"cpprb is not measured: {error}")
    else:
        print(f"cpprb: {each:,.0f} bytes per row, {each * TEN_MILLION / 1e9:.1f} GB for 10 M rows")


if __name__ == "__main__":
    main()
