"""Records what short runs of every kind give, and compares it after a change of the code that must change nothing.

Usage, before and after the change:

    python benchmarks/golden_runs.py record out/golden
    python benchmarks/golden_runs.py compare out/golden

Every run goes through the command line, so that the code behind it may be rebuilt at will. What is compared is what
a user sees: the metrics of training runs, estimates, and the figures that the published runs give. Columns and keys that
the recording does not have are not compared.
Numbers are compared to the bit by default; `--tolerance 1e-6` allows for another order of additions. The recording
depends on the machine and the libraries, so it is not committed.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

BREAKOUT = ["train", "MinAtar/Breakout-v1", "--scale", "smoke", "--threads", "1"]
PRESETS = (
    "c51",
    "c51-auxiliary",
    "c51-td-priority",
    "c51-auxiliary-td-priority",
    "c51-corrected",
    "c51-normalized",
    "c51-dual",
    "c51-matched",
)
VARIANTS = {
    "n-step": ["--ratio-steps", "3", "--value-steps", "3"],
    "restart": ["--semantics", "restart"],
    "restart-n-step": ["--semantics", "restart", "--ratio-steps", "2"],
    "source-rule": ["--initial-rule", "source", "--ratio-steps", "2"],
    "one-batch": ["--ratio-batch", "prioritized"],
    "ratio-rho": ["--priority", "ratio-rho"],
    "reweight": ["--priority", "uniform", "--correction", "reweight"],
    "inverse": ["--ratio-weighting", "inverse"],
    "clips": ["--no-source-clip", "--rho-clip", "1.5"],
    "tempered": ["--priority-tempering", "0.5", "--uniform-share", "0.2"],
    "head-only": ["--ratio-gradient", "head", "--cut-at-life-loss"],
    "matching": ["--preset", "c51-matched", "--ratio-head", "exponential", "--ratio-steps", "2"],
    "one-scale": ["--priority-scale", "mean", "--effective-floor", "0.5"],
    "wide-target": ["--target-period", "8000", "--refresh", "both"],
}
"""Changes of `c51-corrected`, unless they name a preset."""

ESTIMATES = {
    "value": ["value", "--policy", "file:{policy}", "--replicates", "20"],
    "value-average": [
        "value",
        "--policy",
        "file:{policy}",
        "--objective",
        "average",
        "--replicates",
        "20",
        "--ratio-discount",
        "0.9",
    ],
    "ratio-empirical": ["ratio", "--policy", "file:{policy}", "--method", "empirical"],
    "ratio-td": ["ratio", "--policy", "file:{policy}", "--method", "td"],
    "ratio-least-squares": ["ratio", "--policy", "file:{policy}", "--method", "least-squares"],
    "ratio-neural": ["ratio", "--policy", "file:{policy}", "--method", "neural"],
    "ratio-behavior": ["ratio", "--policy", "file:{policy}", "--behavior", "estimate"],
}
"""Of a table, covshift/FourRooms-v0."""

FEATURE_ESTIMATES = {
    "cartpole-value": [
        "value",
        "--policy",
        "tilted:policy",
        "--replicates",
        "10",
        "--features",
        "fourier:20",
    ],
    "cartpole-least-squares": ["ratio", "--policy", "tilted:policy", "--method", "least-squares"],
    "cartpole-semi-gradient": ["ratio", "--policy", "tilted:policy", "--method", "semi-gradient"],
    "cartpole-simplex": [
        "ratio",
        "--policy",
        "tilted:policy",
        "--method",
        "simplex",
        "--semantics",
        "restart",
    ],
    "cartpole-behavior": ["ratio", "--policy", "tilted:policy", "--behavior", "estimate"],
}

PUBLISHED = ("ratio_discount", "normalization", "mean_ratio", "games", "auxiliary", "weighting")
"""Experiments whose figures need the published files alone, no checkpoints."""


TILTED = """
import numpy as np

def policy(x):
    right = 0.5 + 0.3 * np.tanh(x[:, 2] * 10.0)
    return np.stack([1.0 - right, right], axis=1)
"""
"""A policy for CartPole that leans where the pole leans."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("action", choices=("record", "compare"))
    arguments.add_argument("folder", type=Path, help="where the recording lies")
    arguments.add_argument("--tolerance", type=float, default=0.0, help="relative")
    arguments.add_argument("--only", default="", help="a part of the names of the cases to run")
    arguments.add_argument("--figures", action="store_true", help="the published figures too")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = dict(_all_cases(Path(work), given.only, given.figures))
    if given.action == "record":
        given.folder.mkdir(parents=True, exist_ok=True)
        for name, content in found.items():
            (given.folder / f"{name}.json").write_text(json.dumps(content))
        print(f"{len(found)} cases recorded in {given.folder}")
        return
    differing = 0
    for name, content in sorted(found.items()):
        recorded = given.folder / f"{name}.json"
        if not recorded.is_file():
            print(f"{name:32} not recorded")
            continue
        before = json.loads(recorded.read_text())
        lines = list(_differences(before, json.loads(json.dumps(content)), given.tolerance))
        differing += bool(lines)
        print(f"{name:32} {'same' if not lines else '; '.join(lines[:3])}")
    print(f"{differing} of {len(found)} cases differ")
    sys.exit(bool(differing))


def _all_cases(work: Path, only: str, figures: bool) -> Iterator[tuple[str, Any]]:
    data = work / "data"
    _covshift(
        *BREAKOUT,
        "--preset",
        "c51",
        "--num-updates",
        "1",
        "--data-root",
        data,
        "--out",
        work / "first",
    )
    runs: dict[str, list[Any]] = {}
    for preset in PRESETS:
        runs[f"stored+{preset}"] = [*BREAKOUT, "--preset", preset, "--data-root", data]
        runs[f"stream+{preset}"] = [*BREAKOUT, "--preset", preset, "--data", "stream"]
    for name, flags in VARIANTS.items():
        runs[f"variant+{name}"] = [*BREAKOUT, "--data-root", data, *flags]
    runs["finite"] = ["train", "covshift/FourRooms-v0", "--scale", "smoke", "--threads", "1"]
    runs["finite"] += ["--preset", "c51-dual", "--data-root", data]
    runs["frames"] = ["train", "ALE/Pong-v5", "--scale", "smoke", "--threads", "1"]
    runs["frames"] += ["--num-updates", "20", "--evaluate-every", "10", "--data-root", data]
    wanted = {name: command for name, command in runs.items() if only in name}

    def trained(name: str) -> tuple[str, Any]:
        out = work / "runs" / name
        _covshift(*wanted[name], "--out", out)
        return name, _table((out / "metrics.csv").read_text().splitlines())

    # Runs on other games collect data of their own, so that these come first and nothing is collected twice.
    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(trained, wanted)
    yield from _estimates(work, only)
    if figures:
        yield from _figures(work, only)


def _estimates(work: Path, only: str) -> Iterator[tuple[str, Any]]:
    cases = {name: ("covshift/FourRooms-v0", flags) for name, flags in ESTIMATES.items()}
    cases |= {name: ("CartPole-v1", flags) for name, flags in FEATURE_ESTIMATES.items()}
    wanted = {name: case for name, case in cases.items() if only in name}
    if not wanted:
        return
    import numpy as np

    policy = work / "policy.npy"
    rooms = work / "data-rooms"
    _covshift("collect", "covshift/FourRooms-v0", "--transitions", "3000", "--out", rooms)
    manifest = json.loads((rooms / "manifest.json").read_text())
    states = int(manifest["observation"]["shape"][0])
    actions = int(manifest["num_actions"])
    if manifest["observation"]["shape"] == [1]:
        states = 1000
    np.save(policy, np.random.default_rng(0).dirichlet(np.full(actions, 2.0), size=states))
    (work / "tilted.py").write_text(TILTED)
    carts = work / "data-carts"
    _covshift("collect", "CartPole-v1", "--transitions", "2000", "--out", carts)
    where = {"covshift/FourRooms-v0": rooms, "CartPole-v1": carts}

    def estimated(name: str) -> tuple[str, Any]:
        env, (kind, *flags) = wanted[name]
        out = work / "estimates" / name
        flags = [flag.format(policy=policy) for flag in flags]
        _covshift("estimate", kind, where[env], *flags, "--out", out, folder=work)
        file = out / ("values.json" if kind == "value" else "estimate.json")
        return name, json.loads(file.read_text())

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(estimated, wanted)


def _figures(work: Path, only: str) -> Iterator[tuple[str, Any]]:
    published = Path(__file__).resolve().parent.parent / "results" / "small"
    for name in PUBLISHED:
        if only in name:
            copy = work / "small"
            if not copy.exists():
                shutil.copytree(published, copy)
            command = json.loads((copy / name / "figure.json").read_text())["command"].split()
            _covshift(
                "reproduce", name, "--out", copy, "--seeds", command[command.index("--seeds") + 1]
            )
            figure = json.loads((copy / name / "figure.json").read_text())
            yield (
                f"figure+{name}",
                {key: figure[key] for key in ("verdict", "found", "table", "panels")},
            )


def _table(lines: list[str]) -> list[dict[str, str]]:
    """Rows by column, so that a column that was added later is no difference."""
    return list(csv.DictReader(lines))


def _covshift(*arguments: Any, folder: Path | None = None) -> None:
    command = [sys.executable, "-m", "covshift", *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    if done.returncode:
        sys.exit(f"{' '.join(command[2:])}\n{done.stdout}\n{done.stderr}")


def _differences(before: Any, after: Any, tolerance: float, place: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() - {"seconds"}:
            yield from _differences(before.get(key), after.get(key), tolerance, f"{place}.{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for k, (left, right) in enumerate(zip(before, after, strict=True)):
            yield from _differences(left, right, tolerance, f"{place}[{k}]")
    elif before != after and not _close(before, after, tolerance):
        yield f"{place}: {before} → {after}"


def _close(before: Any, after: Any, tolerance: float) -> bool:
    try:
        return math.isclose(float(before), float(after), rel_tol=tolerance, abs_tol=tolerance)
    except (TypeError, ValueError):
        return False


if __name__ == "__main__":
    main()
