from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from covshift.config.training import RatioOptions
from covshift.data.samplers import UniformSampler
from covshift.data.store import Store
from covshift.errors import InputError
from covshift.experiments.theory.claims.mean_ratio import corridor
from covshift.learners.deep import RatioBatch, RatioLearner, RatioLoss, ratio_batch, ring_batch
from covshift.networks import LINEAR, SOFTPLUS, RatioHead
from covshift.records import possible_means
from covshift.rules import discounted_cop_target, normalization_gradient
from covshift.theory.examples import Problem, boyan_chain, line_chain, random_walk

PROBLEMS: dict[str, Callable[[], Problem]] = {
    "BoyanChain": boyan_chain,
    "LineChain": lambda: line_chain(10),
    "RandomWalk": random_walk,
}


def batch_of(
    size: int = 3, mu: Any = 0.5, initial: Any = False, trained: Any = True, source: Any = False
) -> RatioBatch:
    states = np.zeros((size, 2), dtype=np.float32)
    return RatioBatch(
        states,
        np.broadcast_to(trained, size).copy(),
        states[None],
        np.zeros((1, size), dtype=np.int64),
        np.broadcast_to(np.float32(mu), (1, size)).copy(),
        np.broadcast_to(initial, (1, size)).copy(),
        np.broadcast_to(source, size).copy(),
    )


def targets(c: Any, pi: Any, batch: RatioBatch, **options: Any) -> list[float]:
    loss = RatioLoss(RatioOptions(**({"ratio_discount": 0.9} | options)))
    c_source = torch.tensor(c, dtype=torch.float32)
    return loss.targets(c_source, torch.tensor([pi], dtype=torch.float32), batch).tolist()


def test_the_matching_loss_needs_a_positive_link() -> None:
    with pytest.raises(
        InputError, match="ratio_loss matching needs a RatioHead with a FlooredLink"
    ):
        RatioLoss(RatioOptions(ratio_loss="matching"))


def test_targets_by_hand() -> None:
    # γ̂ ρ c + 1 - γ̂ with ρ = π/μ = {0.2/0.5, 0.5/0.5, 1/0.5}.
    found = targets([2.0, 2.0, 2.0], [0.2, 0.5, 1.0], batch_of())
    assert found == pytest.approx([0.9 * 0.4 * 2 + 0.1, 1.9, 3.7])


def test_negative_ratios_are_no_bootstrap_source() -> None:
    assert targets([-3.0, 0.0, 1.0], [0.5] * 3, batch_of()) == pytest.approx([0.1, 0.1, 1.0])
    found = targets([-3.0, 0.0, 1.0], [0.5] * 3, batch_of(), source_clip=False)
    assert found == pytest.approx([-2.6, 0.1, 1.0])


@pytest.mark.parametrize("clip", [True, False])
def test_the_clip_adds_mass(clip: bool) -> None:
    """A line over `corridor`'s row: without the clip its mean is exact, with it no bound holds (`B6-clipped-sources`)."""
    problem = corridor(0.9)
    rng = np.random.default_rng(0)
    place = np.zeros(20_000, dtype=np.int64)
    goes_on = rng.random(len(place)) < 0.5
    for t in range(1, len(place)):
        place[t] = min(place[t - 1] + 1, 4) if goes_on[t - 1] else 0
    starts = np.concatenate([[True], ~goes_on[:-1]])
    observed = place[:, None].astype(np.float32)
    options = RatioOptions(ratio_discount=0.99, ratio_loss_weight=1.0, source_clip=clip)
    learner = RatioLearner(
        nn.Identity(),
        RatioHead(1, 0),
        lambda s: np.tile([0.9, 0.1], (len(s), 1)),
        options,
        learning_rate=0.05,
        target_updates=20,
    )
    for _ in range(3000):
        ids = rng.integers(1, len(place), 256)
        mu = np.full(len(place), 0.5)
        learner.update(ring_batch(observed, 1 - goes_on, mu, starts, ids))
    with torch.no_grad():
        mean = learner.network(torch.from_numpy(observed)).mean().item()
    exact = float(problem.d_mu @ problem.c_star(0.99) / problem.d_mu.sum())
    _, bound = possible_means(options, float(starts.mean()))
    assert exact == pytest.approx(4.63, abs=0.01)
    assert bound == pytest.approx(50.5, abs=1)
    # What chance adds to E[ρc] in 20,000 rows counts 99 times too, so that the exact mean is hit roughly.
    assert mean > 2 * bound if clip else abs(mean - exact) < 2.0


def test_initial_states_have_target_one() -> None:
    initial = np.array([[True, False, True]])
    found = targets([2.0, 2.0, -5.0], [0.5] * 3, batch_of(initial=initial))
    assert found == pytest.approx([1.0, 1.9, 1.0])


def test_the_second_reading_bootstraps_from_one_after_initial_states() -> None:
    batch = batch_of(source=np.array([True, False, True]))
    assert targets([2.0] * 3, [0.5] * 3, batch) == pytest.approx([1.9] * 3)
    found = targets([2.0] * 3, [0.5] * 3, batch, initial_rule="source")
    assert found == pytest.approx([1.0, 1.9, 1.0])


def test_rho_is_clipped_above_only_where_asked() -> None:
    assert targets([1.0], [1.0], batch_of(1, mu=0.1)) == pytest.approx([9.1])
    assert targets([1.0], [1.0], batch_of(1, mu=0.1), rho_clip=2.0) == pytest.approx([1.9])
    assert targets([1.0], [0.01], batch_of(1, mu=0.1), rho_clip=2.0) == pytest.approx([0.19])


def test_n_step_targets_take_the_latest_ratios(toy_store: Store) -> None:
    # One step applied three times from the window's first state is the three-step target.
    options = RatioOptions(ratio_discount=0.8, ratio_steps=3)
    ids = np.flatnonzero(toy_store.is_state)
    batch = ratio_batch(toy_store, ids, options)
    rng = np.random.default_rng(0)
    c, pi = rng.uniform(0, 2, len(ids)), rng.uniform(0, 1, (3, len(ids)))
    found = RatioLoss(options).targets(torch.from_numpy(c), torch.from_numpy(pi), batch).numpy()
    for k in range(len(ids)):
        value = c[k]
        for step in range(3):
            rho = pi[step, k] / batch.mu_window[step, k]
            value = 1.0 if batch.is_initial_window[step, k] else 0.8 * rho * value + 0.2
        assert found[k] == pytest.approx(value, rel=1e-6)


def test_what_has_no_target_adds_no_loss() -> None:
    batch = batch_of(2, trained=np.array([True, False]))
    loss = RatioLoss(RatioOptions(ratio_loss_weight=0.5))
    c = torch.tensor([1.0, 7.0], requires_grad=True)
    terms = loss.terms(c, torch.tensor([3.0, 0.0]), batch)
    # η · (2²)/2, with gradient η · 2 · (c - target)/2 at the first alone.
    assert terms.loss.item() == pytest.approx(0.5 * 4 / 2)
    assert terms.residual.item() == pytest.approx(2.0)
    terms.loss.backward()  # type: ignore[no-untyped-call]
    assert c.grad is not None
    assert c.grad.tolist() == pytest.approx([-1.0, 0.0])


def test_the_normalization_gradient_is_theorem_fives() -> None:
    options = RatioOptions(ratio_loss_weight=0.0, normalization_weight=2.0, semantics="paper")
    values = np.array([0.5, 1.0, 3.0])
    c = torch.tensor(values, requires_grad=True)
    RatioLoss(options).terms(c, torch.zeros(3, dtype=torch.float64), batch_of()).loss.backward()  # type: ignore[no-untyped-call]
    # 2/m · (mean of the others - 1): {(1+3)/2, (0.5+3)/2, (0.5+1)/2} - 1.
    assert c.grad is not None
    np.testing.assert_allclose(c.grad, 2 / 3 * (np.array([2.0, 1.75, 0.75]) - 1))
    # And on average over independent pairs it is eq. (8).
    pairs = [np.array([a, b]) for a in values for b in values]
    estimates = [((pair[::-1] - 1).mean()) for pair in pairs]
    exact = normalization_gradient(values.mean(keepdims=True), np.ones(1))
    assert np.mean(estimates) == pytest.approx(exact[0])


def test_inverse_weights_are_those_of_the_state_over_their_mean() -> None:
    options = RatioOptions(ratio_weighting="inverse", ratio_discount=0.9, ratio_loss_weight=1.0)
    loss = RatioLoss(options)
    c = torch.tensor([0.5, 2.0, -1.0], requires_grad=True)
    terms = loss.terms(c, torch.zeros(3), batch_of())
    weights = np.array([2.0, 0.5, 10.0])  # 1/max(c, 1 - γ̂)
    assert loss.mean_weight == pytest.approx(weights.mean())
    assert terms.loss.item() == pytest.approx(
        (weights / weights.mean() * np.array([0.25, 4, 1])).mean()
    )
    terms.loss.backward()  # type: ignore[no-untyped-call]
    assert c.grad is not None  # and none of it through the weights
    np.testing.assert_allclose(
        c.grad, 2 / 3 * weights / weights.mean() * [0.5, 2.0, -1.0], rtol=1e-6
    )


class Linear(nn.Module):
    """ĉ = φᵀw, without a bias."""

    def __init__(self, w: np.ndarray) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.from_numpy(w))

    def forward(self, phi: torch.Tensor) -> torch.Tensor:
        return phi.to(self.w.dtype) @ self.w


def test_the_deep_loss_on_features_is_the_linear_learners_step(
    collected: Callable[[str, Problem, int], Path],
) -> None:
    """∇ of mean (target - ĉ)² is -2 × the mean of (target - ĉ) φ(s_t)."""
    problem = PROBLEMS["LineChain"]()
    store = Store.open(collected("LineChain", problem, 20_000))
    options = RatioOptions(ratio_discount=0.95, ratio_loss_weight=1.0)
    ids = np.flatnonzero(store.is_state & ~store.columns["is_initial"])[:64]
    batch = ratio_batch(store, ids, options)
    w = np.random.default_rng(0).uniform(0.5, 1.5, problem.mdp.num_states)
    learner = RatioLearner(
        nn.Identity(), Linear(w.copy()), lambda s: problem.pi[s.argmax(axis=1)], options
    )
    learner.update(batch)
    gradient = next(learner.network.parameters()).grad
    assert gradient is not None
    s_tm1, s_t = batch.s_window[0].argmax(axis=1), batch.s_t.argmax(axis=1)
    rho = problem.rho[s_tm1, batch.a_window[0]]
    eye = np.eye(problem.mdp.num_states)
    error = discounted_cop_target(w[s_tm1], rho, 0.95) - w[s_t]
    direction = error[:, None] * eye[s_t]
    np.testing.assert_allclose(gradient.numpy(), -2 * direction.mean(axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("name", "ratio_discount", "weighting", "semantics"),
    [
        (name, ratio_discount, weighting, "visits")
        for name in ("LineChain", "RandomWalk", "BoyanChain")
        for ratio_discount in (0.9, 0.99)
        for weighting in ("uniform", "inverse")
    ]
    + [("RandomWalk", 0.9, "uniform", "restart"), ("BoyanChain", 0.99, "uniform", "restart")],
)
def test_a_ratio_head_learns_the_exact_ratio(
    collected: Callable[[str, Problem, int], Path],
    name: str,
    ratio_discount: float,
    weighting: Any,
    semantics: Any,
) -> None:
    """Root mean square error under d_μ below 0.1 of the ratio's own size, from 40000 transitions."""
    problem = PROBLEMS[name]()
    store = Store.open(collected(name, problem, 40_000))
    options = RatioOptions(
        ratio_discount=ratio_discount,
        ratio_loss_weight=1.0,
        ratio_weighting=weighting,
        semantics=semantics,
    )
    torch.manual_seed(0)
    size = problem.mdp.num_states
    head = RatioHead(size, 0, SOFTPLUS if weighting == "inverse" else LINEAR)

    class Bytes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float()

    learner = RatioLearner(
        Bytes(),
        head,
        lambda s: problem.pi[s.argmax(axis=1)],
        options,
        learning_rate=0.02,
        target_updates=20,
    )
    sampler = UniformSampler(store.is_state, np.random.default_rng(0))
    steps = 2500
    averaged = np.zeros(size)
    for step in range(steps):
        learner.update(ratio_batch(store, sampler.sample(256), options))
        learner.optimizer.param_groups[0]["lr"] = 0.02 * (1 - step / steps) + 1e-4
        if step >= steps - 500:
            averaged += learner.ratio(np.eye(size, dtype=np.uint8)) / 500
    meant = problem.restart() if semantics == "restart" else problem
    exact = meant.c_star(ratio_discount)
    d = meant.d_mu / meant.d_mu.sum()
    error = np.sqrt((d * (averaged - exact) ** 2).sum() / (d * exact**2).sum())
    assert error < 0.1, f"{error:.3f}: {averaged.round(2)} for {exact.round(2)}"


def test_inverse_weights_are_divided_by_their_running_mean() -> None:
    """The second batch moves the mean by 1 %: dividing by its own mean would hide that its ratios are small."""
    loss = RatioLoss(RatioOptions(ratio_discount=0.9, ratio_weighting="inverse"))
    target = torch.zeros(3)
    loss.terms(torch.tensor([1.0, 1.0, 1.0]), target, batch_of())
    found = loss.terms(torch.tensor([0.5, 0.5, 0.5]), target, batch_of())
    # 1/c is 1, then 2: the mean is 1 + 0.01 · (2 - 1), and the squared error ½ · 0.25 or 0.25.
    plain = RatioLoss(RatioOptions(ratio_discount=0.9)).terms(
        torch.tensor([0.5, 0.5, 0.5]), target, batch_of()
    )
    assert float(found.squared_error / plain.squared_error) == pytest.approx(2 / 1.01)
