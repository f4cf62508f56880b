"""Playing with the policy of a saved run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.runs.evaluation import roll_out, run_steps
from covshift.runs.saved import load_run
from covshift.runs.seeds import named_generator
from covshift.validation import check_repeats


class PlayedEpisode(NamedTuple):
    """An episode to look at.

    Attributes:
        states: the newest observation of each step.
        tracks: numbers along the episode by name: `value`, and `c(s)` if the ratio was learned.
        scores: sum of rewards up to each step.
    """

    states: list[NDArray[Any]]
    tracks: dict[str, NDArray[np.float64]]
    scores: NDArray[np.float64]


def evaluate_run(folder: Path, episodes: int, epsilon: float | None, seed: int) -> dict[str, str]:
    """What a run's policy scores, as pairs of a word and a text."""
    check_repeats("episodes", episodes)
    run = load_run(folder)
    config = run.config
    used = _checked_epsilon(epsilon, config.evaluation.evaluation_epsilon)
    generator = named_generator(seed, "evaluate")
    results = roll_out(run.policy(used), config.env, config.environment, episodes, generator)
    scores = np.array([result.score for result in results])
    steps = sum(result.length for result in results)
    facts = {"damaged": f"passed over: {'; '.join(run.damaged)}"} if run.damaged else {}
    facts |= {
        "run": f"{folder}, update {run.update:,}",
        "policy": f"ε-greedy, ε = {used:g}",
        "score": f"{scores.mean():.2f}{_interval(scores)} over {episodes} episodes, "
        f"from {scores.min():g} to {scores.max():g}",
        "episode length": f"{steps / episodes:.1f} agent steps",
    }
    if run.network.ratio_head is not None:
        mean = sum(result.ratio_sum for result in results) / steps
        facts["mean c"] = f"{mean:.3f} over the states of these episodes"
    return facts


def play_episode(folder: Path, epsilon: float | None, steps: int, seed: int) -> PlayedEpisode:
    """Plays an episode of a run's policy, of at most `steps` steps."""
    check_repeats("steps", steps)
    run = load_run(folder)
    config = run.config
    used = _checked_epsilon(epsilon, config.ratio.target_epsilon)
    generator = named_generator(seed, "watch")
    states, values, ratios, rewards = [], [], [], []
    with closing(
        run_steps(run.policy(used), config.env, config.environment, 1, generator)
    ) as playing:
        for step in playing:
            states.append(step.observation[0])
            values.append(float(step.notes["value"][0]))
            ratios.append(float(step.notes["ratio"][0]))
            rewards.append(float(step.outcome.reward[0]))
            if step.outcome.ended[0] or len(states) == steps:
                break
    tracks = {"value": np.array(values)}
    if run.network.ratio_head is not None:
        tracks["c(s)"] = np.array(ratios)
    return PlayedEpisode(states, tracks, np.cumsum(rewards))


def _checked_epsilon(given: float | None, default: float) -> float:
    used = default if given is None else given
    if not 0.0 <= used <= 1.0:
        raise InputError(f"epsilon must lie in [0, 1], but it is {used}")
    return used


def _interval(scores: NDArray[np.float64]) -> str:
    """± 1.96 standard errors of the mean over episodes."""
    if len(scores) < 2:
        return ""
    return f" ± {1.96 * scores.std(ddof=1) / np.sqrt(len(scores)):.2f}"
