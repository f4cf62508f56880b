"""The ratio as a neural network, learned from mini-batches with a target network and the agent's loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.arrivals import arrivals
from covshift.estimation.matching import UNBOUNDED
from covshift.estimation.problem import NeuralRatio, RatioProblem, mean_over_data
from covshift.extras import require
from covshift.rules import LINKS
from covshift.validation import check_count

if TYPE_CHECKING:
    from covshift.learners.deep import RatioBatch, RatioLearner

NUM_UPDATES = 4000
"""Default number of mini-batches of a fit."""


def fit_neural(
    problem: RatioProblem,
    *,
    num_steps: int = 1,
    weighting: Literal["uniform", "inverse"] = "uniform",
    head: Literal["linear", "softplus", "exponential", "safe"] = "linear",
    loss: Literal["squared", "matching"] = "squared",
    num_updates: int = NUM_UPDATES,
    batch_size: int = 256,
    learning_rate: float = 1e-3,
    target_updates: int = 50,
    seed: int = 0,
    progress: Callable[[int], None] = lambda count: None,
) -> NeuralRatio:
    """Discounted COP-TD, eq. (9), with a network of two hidden layers of 128 units.

    The result is rescaled to E_μ[c] = 1 where that holds and nothing else sets the scale: at γ̂ = 1, and under
    `inverse` weighting, whose scale collapses (B1, weighting errors by 1/c).

    Args:
        problem: the ratio to estimate.
        num_steps: n of the n-step target; states with fewer steps before them in their record have none.
        weighting: weight of the squared errors: uniform, or 1/ĉ.
        head: `linear`, whose negative outputs stay as they are in targets and become 0 in the result; `softplus`,
            which is positive but loses mass where targets are noisy (B6, on the mean ratio); `exponential` or `safe`,
            which are at least 1 - γ̂ (B7, the matching loss).
        loss: squared errors, or the matching loss of an exponential or safe head, which keeps the mean of the targets.
        num_updates: number of mini-batches.
        batch_size: states per mini-batch.
        learning_rate: Adam's first step size, which falls linearly to 0.
        target_updates: number of updates between copies to the target network.
        seed: seed of the weights and the batches.
        progress: called with 1 after each update.
    """
    for name, count in (
        ("num_steps", num_steps),
        ("num_updates", num_updates),
        ("batch_size", batch_size),
        ("target_updates", target_updates),
    ):
        check_count(name, count)
    _check_options(problem, weighting, head, loss)
    require("torch")
    import torch

    from covshift.config.training import RatioOptions
    from covshift.learners.deep import RatioLearner
    from covshift.networks import RatioHead, VectorTorso, make_link

    rng, discount = np.random.default_rng(seed), problem.ratio_discount
    states, windows = _states(problem), _windows(problem, num_steps, rng)
    options = RatioOptions(
        ratio_loss_weight=1.0,
        ratio_discount=discount,
        ratio_steps=num_steps,
        ratio_weighting=weighting,
        ratio_loss=loss,
        source_clip=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        torso = VectorTorso((states.shape[1],))
        ratio_head = RatioHead(torso.num_features, torso.head_hidden, make_link(head, discount))
    learner = RatioLearner(
        torso,
        ratio_head,
        problem.experience.policy.probabilities,
        options,
        learning_rate=learning_rate,
        target_updates=target_updates,
    )
    for update in range(num_updates):
        drawn = rng.integers(len(windows.arrived), size=batch_size)
        learner.learn(_batch(states, windows, drawn), windows.rho[:, drawn])
        learner.optimizer.param_groups[0]["lr"] = learning_rate * (1 - (update + 1) / num_updates)
        progress(1)
    rescaled = problem.has_mean_one and (discount == 1.0 or weighting == "inverse")
    return _function(problem, learner, head, rescaled)


def _check_options(problem: RatioProblem, weighting: str, head: str, loss: str) -> None:
    for name, value, known in (
        ("weighting", weighting, ("uniform", "inverse")),
        ("head", head, ("linear", "softplus", *LINKS)),
        ("loss", loss, ("squared", "matching")),
    ):
        if value not in known:
            raise InputError(f"{name} must be {' | '.join(known)}, but it is {value}")
    if loss == "squared":
        return
    if head not in LINKS or weighting != "uniform":
        raise InputError(
            f"loss matching needs head exponential or safe and weighting uniform, but they are {head} and {weighting}"
        )
    if not problem.ratio_discount > 0:
        raise InputError("loss matching needs a ratio_discount above 0: at 0 every ratio is 1")
    if problem.semantics == "visits" and problem.ratio_discount * problem.discount == 1.0:
        raise InputError(UNBOUNDED)


class _Windows(NamedTuple):
    """States that were arrived at, with the n steps that led to them; states are rows of `_states`.

    Attributes:
        arrived: the state of each arrival.
        sources: n × arrivals, the states that the steps left, oldest first.
        rho: n × arrivals, γρ of each step.
        initial: n × arrivals, whether the state that a step led to starts an episode.
    """

    arrived: NDArray[np.int64]
    sources: NDArray[np.int64]
    rho: NDArray[np.float64]
    initial: NDArray[np.bool_]


def _batch(states: NDArray[np.float32], windows: _Windows, drawn: NDArray[np.int64]) -> RatioBatch:
    """Some arrivals as a batch of the learner, which gets ρ beside it and so needs no actions and no μ."""
    from covshift.learners.deep import RatioBatch

    sources = windows.sources[:, drawn]
    return RatioBatch(
        s_t=states[windows.arrived[drawn]],
        is_trained_t=np.ones(len(drawn), dtype=bool),
        s_window=states[sources],
        a_window=np.zeros(sources.shape, dtype=np.int64),
        mu_window=np.ones(sources.shape, dtype=np.float32),
        is_initial_window=windows.initial[:, drawn],
        is_source_initial=np.zeros(len(drawn), dtype=bool),
    )


def _windows(problem: RatioProblem, num_steps: int, rng: np.random.Generator) -> _Windows:
    """Arrivals with all n steps in their record, or with an episode's start among them."""
    moves = arrivals(problem, rng, by_row=True)
    source, rho, arrived = moves.s_tm1[:, 0], moves.rho_tm1[:, 0], moves.s_t[:, 0]
    index = np.arange(len(arrived))
    window = index - np.arange(num_steps - 1, -1, -1)[:, None]
    inside = window >= moves.record
    clamped = np.where(inside, window, index)
    starts = moves.is_initial_t[:, 0][clamped] & inside
    kept = inside.all(axis=0) | starts.any(axis=0)
    if not kept.any():
        raise InputError(f"no record is as long as num_steps = {num_steps}")
    return _Windows(arrived[kept], source[clamped][:, kept], rho[clamped][:, kept], starts[:, kept])


def _states(problem: RatioProblem) -> NDArray[np.float32]:
    """The states before all transitions, then those after them, as `arrivals` numbers them."""
    samples = list(problem.experience.samples())
    rows = np.concatenate([*(s.x_tm1 for s in samples), *(s.x_t for s in samples)])
    if problem.experience.is_tabular:
        known = np.clip(rows, 0, problem.experience.features.size - 1)
        rows = np.eye(problem.experience.features.size)[known]
    return np.asarray(rows, dtype=np.float32)


def _function(
    problem: RatioProblem, learner: RatioLearner, head: str, rescaled: bool
) -> NeuralRatio:
    experience = problem.experience
    w_torso, b_torso, w_hidden, b_hidden, w_out, b_out = (
        value.double().numpy() for value in learner.network.state_dict().values()
    )
    states = experience.features.size if experience.is_tabular else 0
    function = NeuralRatio(
        w_torso, b_torso, w_hidden, b_hidden, w_out, b_out, 1.0, head == "softplus", states,
        head if head in LINKS else "", problem.ratio_discount,
    )  # fmt: skip
    if not rescaled:
        return function
    mean = mean_over_data(experience, function)
    if not mean > 0:
        raise InputError(
            "the network's ratio is 0 everywhere: use more updates, or head='softplus'"
        )
    return replace(function, scale=1.0 / mean)
