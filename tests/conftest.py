from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from covshift.data.collection import Request, collect
from covshift.data.format import COLUMNS, Rows
from covshift.data.frames import FrameCodec
from covshift.data.store import Store
from covshift.theory.examples import Problem

# No deadline, since shared machines stall; the same examples every run, so that a failure repeats.
settings.register_profile("covshift", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("covshift")


@pytest.fixture
def toy_store() -> Store:
    """Episodes of random lengths with vectors as observations: row t shows (t, t², 1) scaled."""
    rng = np.random.default_rng(7)
    codec = FrameCodec((3,), np.dtype(np.float32), None)
    store = Store(codec, 1, 4)
    for episode, length in enumerate([5, 1, 8, 3, 12, 2, 6]):
        rows = length + 1
        terminated = np.zeros(rows, dtype=bool)
        terminated[-1] = episode % 3 != 2
        truncated = np.zeros(rows, dtype=bool)
        truncated[-1] = not terminated[-1]
        initial = np.arange(rows) == 0
        action = rng.integers(4, size=rows)
        action[-1] = -1
        mu = rng.uniform(0.1, 0.9, size=rows)
        mu[-1] = np.nan
        reward = np.where(initial, 0.0, rng.normal(0, 2, size=rows))
        life = ~initial & ~terminated & (rng.random(rows) < 0.2)
        columns = {
            "action": action,
            "mu": mu,
            "policy": np.zeros(rows),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "life_lost": life,
            "is_initial": initial,
            "episode": np.full(rows, episode),
            "stream": np.zeros(rows),
        }
        start = len(store)
        t = np.arange(start, start + rows)
        observations = np.stack([t / 40, (t / 40) ** 2, np.ones(rows)], axis=1).astype(np.float32)
        typed = {
            name: columns[name].astype(kind.to_pandas_dtype()) for name, kind in COLUMNS.items()
        }
        store.append(Rows(typed, [codec.encode(row) for row in observations]))
    store.check_valid()
    return store


@pytest.fixture(scope="session")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Problem, int], Path]:
    """Datasets of the finite examples under their own behavior policies."""
    made: dict[tuple[str, int], Path] = {}

    def make(name: str, problem: Problem, transitions: int) -> Path:
        if (name, transitions) not in made:
            place = tmp_path_factory.mktemp(name)
            np.save(place / "mu.npy", problem.mu)
            policy = f"file:{place / 'mu.npy'}"
            request = Request(f"covshift/{name}-v0", transitions, (policy,))
            made[name, transitions] = collect(request, place / "data", progress=lambda _: None)
        return made[name, transitions]

    return make
