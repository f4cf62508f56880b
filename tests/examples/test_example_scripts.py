"""The examples run at smoke length, and do what they say."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_dqn_in_one_file() -> None:
    script = load("dqn_single_file")
    returns = script.train(900)
    assert len(returns) > 10
    assert all(np.isfinite(returns))
    # The correction changes what is drawn, and so what is done.
    assert script.train(900, correct=False) != returns


def test_stable_baselines3() -> None:
    pytest.importorskip("stable_baselines3")
    script = load("stable_baselines3_replay")
    agent = script.train(600)
    buffer = agent.replay_buffer
    assert buffer.pos == 600
    assert ((buffer.mu[:600] > 0) & (buffer.mu[:600] <= 1)).all()
    assert np.allclose(buffer.mu[:200], 0.5)  # at random at first
    assert not np.allclose(buffer.mu[200:300], 0.5)
    assert buffer.is_initial[0]
    starts = np.flatnonzero(buffer.is_initial[1:600]) + 1
    assert buffer.dones[starts - 1, 0].all()
    assert buffer.ratio.num_updates == 100  # (600 - 200)/4
    law = buffer.sampler.probabilities(np.arange(600))
    assert law.sum() == pytest.approx(1.0)
    assert len(np.unique(law)) > 50  # priorities are ratios, not all 1
