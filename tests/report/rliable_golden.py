"""What rliable 1.2 says of fixed scores, written to `rliable_golden.json`.

    python tests/report/rliable_golden.py

needs an environment of its own: rliable's dependency arch 7.2 does not import with pandas 3, so that
`pip install rliable 'pandas<3'` does not go together with this project's constraints. The tests compare with the file
everywhere, and with rliable itself where it can be imported.

rliable draws from NumPy's global generator whatever `random_state` it is given, so that the seed is set there; the
tests repeat the draws with a generator of the same seed.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).with_suffix(".json")
SEED, RESAMPLES = 11, 400


def scores() -> dict[str, Any]:
    """Two methods on four tasks, with ties; and curves of one of them at three points in time."""
    generator = np.random.RandomState(5)
    x = np.round(generator.normal([0, 3, -2, 10], [1, 2, 1, 5], size=(5, 4)), 1)
    y = np.round(generator.normal([0.5, 2, -2, 12], [1, 2, 1, 5], size=(7, 4)), 1)
    y[0, 0] = x[1, 0]
    curves = np.round(generator.normal(size=(5, 4, 3)) + np.arange(3), 1)
    return {"x": x, "y": y, "curves": curves}


def rliable_says(given: dict[str, Any]) -> dict[str, Any]:
    """Point estimates and 95 % intervals, each from a generator that is seeded anew."""
    library = importlib.import_module("rliable.library")
    metrics = importlib.import_module("rliable.metrics")
    iqm, improvement = metrics.aggregate_iqm, metrics.probability_of_improvement
    asked = {
        "iqm": (given["x"], lambda s: np.array([iqm(s)])),
        "mean": (given["x"], lambda s: np.array([metrics.aggregate_mean(s)])),
        "improvement": (
            [given["x"], given["y"]],
            lambda x, y: np.array([improvement(x, y)]),
        ),
        "curves": (given["curves"], lambda s: np.array([iqm(s[..., k]) for k in range(3)])),
    }
    answers = {}
    for name, (data, function) in asked.items():
        np.random.seed(SEED)  # noqa: NPY002 - rliable draws from nowhere else
        values, intervals = library.get_interval_estimates({name: data}, function, reps=RESAMPLES)
        answers[name] = {
            "value": values[name].tolist(),
            "low": intervals[name][0].tolist(),
            "high": intervals[name][1].tolist(),
        }
    return answers


def main() -> None:
    given = scores()
    answers = rliable_says(given)
    inputs = {name: array.tolist() for name, array in given.items()}
    PATH.write_text(json.dumps({"inputs": inputs, "rliable": answers}, indent=1) + "\n")
    print(f"The values: {PATH}")


if __name__ == "__main__":
    main()
