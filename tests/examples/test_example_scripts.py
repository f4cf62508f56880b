"""The examples run at smoke length, and do what they say."""

import importlib.util
import sys
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
    assert script.train(900, by_ratio=False) != returns


def test_stable_baselines3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = load("stable_baselines3_replay")
    monkeypatch.setattr(sys, "argv", ["stable_baselines3_replay.py", "--steps", "800"])
    script.main()
    printed = capsys.readouterr().out
    for name in ("ReplayBuffer", "PrioritizedReplayBuffer", "RatioReplayBuffer"):
        assert f"\n{name}: the last 20 episodes returned " in printed
    assert "the mean ratio E_μ[c] is" in printed
