"""Replays for other people's agents: `RatioReplay` for a hand-written loop, and buffers for Stable-Baselines3.

Datasets of d3rlpy are in `covshift.integrations.d3rlpy`, which needs d3rlpy in an environment of its own.
A module is imported when it is first used, so that only what you use has to be installed.
"""

import importlib
from typing import Any

from covshift.extras import require

require("torch")

_MODULES = {
    "EpisodeCheck": "covshift.integrations.episode_check",
    "PrioritizedReplayBuffer": "covshift.integrations.stable_baselines3",
    "RatioReplay": "covshift.integrations.ratio_replay",
    "RatioReplayBuffer": "covshift.integrations.stable_baselines3",
    "ReplayBatch": "covshift.integrations.ratio_replay",
}
"""Where each class comes from."""

__all__ = [
    "EpisodeCheck",
    "PrioritizedReplayBuffer",
    "RatioReplay",
    "RatioReplayBuffer",
    "ReplayBatch",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'covshift.integrations' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
