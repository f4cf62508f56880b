"""Methods and sizes by name; each is a set of changes to one configuration."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from covshift.config.training import TrainConfig
from covshift.errors import InputError

PRESETS: dict[str, dict[str, Any]] = {
    "c51": {"learn_ratio": False},
    "c51-auxiliary": {"ratio_loss_weight": 0.002, "ratio_discount": 0.999},
    "c51-td-priority": {"learn_ratio": False, "priority": "td-error"},
    "c51-auxiliary-td-priority": {
        "ratio_loss_weight": 0.002,
        "ratio_discount": 0.999,
        "priority": "td-error",
    },
    "c51-corrected": {
        "priority": "ratio",
        "ratio_loss_weight": 0.02,
        "ratio_discount": 0.99,
    },
    "c51-normalized": {
        "priority": "ratio",
        "ratio_loss_weight": 0.002,
        "ratio_discount": 1.0,
        "normalization_weight": 0.01,
        "semantics": "paper",
    },
    "c51-conservative": {"learn_ratio": False, "conservatism": 0.003},
    "c51-behavior": {"learn_ratio": False, "bootstrap_action": "data"},
    "c51-dual": {
        "priority": "ratio",
        "ratio_loss_weight": 0.02,
        "ratio_discount": 0.99,
        "ratio_weighting": "inverse",
        "ratio_head": "softplus",
        "refresh": "both",
    },
    "c51-matched": {
        "priority": "ratio",
        "ratio_loss": "matching",
        "ratio_head": "safe",
        "ratio_loss_weight": 0.04,
        "ratio_discount": 0.99,
        "source_clip": False,
        "mass_closure": True,
        "priority_scale": "mean",
        "refresh": "both",
    },
}
"""Changes to the defaults. The last four are not the paper's: two are what others do about off-policy data, two are ours."""

PRESET_TEXTS = {
    "c51": "no correction: the baseline",
    "c51-auxiliary": "the ratio is learned but not used (Figure 3)",
    "c51-td-priority": "replay prioritized by TD error, after Schaul et al. (Figure 3)",
    "c51-auxiliary-td-priority": "both of these (Figure 3)",
    "c51-corrected": "the paper's agent: replay prioritized by c(s), discounted COP-TD (Figures 1, 2)",
    "c51-normalized": "γ̂ = 1 with the normalization loss instead of a discount (Figure 1, right)",
    "c51-conservative": "conservative Q-learning (Kumar et al.), with no ratio: a penalty on actions that the data do not show",
    "c51-behavior": "values of the behavior policy, with no ratio; the score is that of one step of improvement",
    "c51-dual": "ours: 1/c weighting, positive head, priorities renewed from both batches",
    "c51-matched": "ours: matching loss on a positive head, priorities on one scale, renewed from both batches",
}

SCALES: dict[str, dict[str, Any]] = {
    "paper": {},
    "atari": {
        "frame_size": 42,
        "episode_cap": 4_500,
        "width": 0.5,
        "value_steps": 10,
        "batch_size": 128,
        "learning_rate": 3e-5,
        "target_period": 100,
        "transitions": 300_000,
        "window": 300_000,
        "epsilon_decay": 100_000,
        "num_updates": 4_000,
        "evaluate_every": 1_000,
        "evaluation_episodes": 10,
        "ratio_episodes": 4,
        "calibration_episodes": 0,
    },
    "small": {
        "transitions": 300_000,
        "window": 300_000,
        "epsilon_decay": 100_000,
        "num_updates": 60_000,
        "evaluate_every": 5_000,
        "evaluation_episodes": 20,
    },
    "smoke": {
        "transitions": 2_000,
        "window": 2_000,
        "warm_up": 1_000,
        "stream_shard": 500,
        "epsilon_decay": 200,
        "online_shard": 100,
        "num_updates": 100,
        "episode_cap": 250,
        "evaluate_every": 50,
        "evaluation_episodes": 2,
        "ratio_episodes": 2,
        "calibration_episodes": 8,
    },
}
"""Differences from the paper's sizes, and at `atari` from its optimization too: `docs/deviations.md`, 10."""

SCALE_TEXTS = {
    "paper": "10 million transitions, 9.4 million updates: weeks on a CPU, days on a GPU",
    "atari": "300000 transitions of 42 × 42 pixels, 4000 updates of 128 transitions, episodes of at most 5 minutes: minutes on a core with ALE",
    "small": "300000 transitions, 60000 updates: minutes on a core with MinAtar",
    "smoke": "2000 transitions, 100 updates, episodes of at most 250 steps: seconds, to check that it runs",
}


def make_config(
    env: str, preset: str = "c51-corrected", scale: str = "small", **leaves: Any
) -> TrainConfig:
    """The configuration of a preset at a scale, with some settings changed.

    Args:
        env: environment id.
        preset: a key of `PRESETS`.
        scale: a key of `SCALES`.
        **leaves: the settings to change, by name.

    Example:
        >>> make_config("MinAtar/Breakout-v1", "c51-corrected", ratio_discount=0.9).ratio.ratio_discount
        0.9
    """
    changes = _named("preset", PRESETS, preset) | _named("scale", SCALES, scale) | leaves
    return TrainConfig(env=env, preset=preset, scale=scale).replace_leaves(**changes)


def _named(kind: str, choices: Mapping[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in choices:
        near = difflib.get_close_matches(name, choices, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; say {' | '.join(choices)}"
        raise InputError(f"there is no {kind} '{name}'{hint}")
    return choices[name]
