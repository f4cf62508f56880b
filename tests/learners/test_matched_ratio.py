"""The learner by matching loss against the rule, the operator of exact fits, and the table's exact ratio."""

from typing import Any, Literal

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.learners import LearnedRatio, LinearTD, MatchedRatio, constant, robbins_monro, train
from covshift.rules import LINKS, floored_ratio
from covshift.theory import CopOperator, MatchingOperator, fit_matching
from covshift.theory.examples import Problem, line_chain, random_walk
from covshift.theory.simulation import Transition, simulate
from covshift.validation import Dense, Vector

LinkName = Literal["exponential", "safe"]
CONTINUING = line_chain(5)
EPISODES = random_walk(revisits_start=True)
PHI = np.column_stack([np.ones(5), np.random.default_rng(1).standard_normal((5, 2))])


def expectation(problem: Problem) -> tuple[Transition, Vector]:
    """Every transition as a stream of its own, and its probability; an episode's end leads to the next start."""
    kernel, d_0 = problem.mdp.dense_kernel(), problem.mdp.d_0
    ends = np.maximum(1.0 - kernel.sum(axis=2, keepdims=True), 0.0)
    starts = np.zeros_like(kernel) if d_0 is None else ends * d_0
    both = np.stack([kernel, starts])
    initial, s, a, t = np.nonzero(both)
    d_mu = problem.d_mu / problem.d_mu.sum()
    share = d_mu[s] * problem.mu[s, a] * both[initial, s, a, t]
    return Transition(s, a, problem.mdp.r[s, a], t, initial == 1), share


def fixed_weights(problem: Problem, link: LinkName, ratio_discount: float) -> Vector:
    """Weights of the fixed point of exact fits: those that fit what arrives there."""
    operator = CopOperator(problem.chain_pi, problem.d_mu, ratio_discount)
    fits = MatchingOperator(operator, PHI, LINKS[link], floored=True, averaging=0.5)
    arrivals = (fits.fixed_point() - (1.0 - ratio_discount)) / ratio_discount
    return fit_matching(arrivals, PHI, problem.d_mu, LINKS[link])


@pytest.mark.parametrize("link", ["exponential", "safe"])
@pytest.mark.parametrize(
    ("problem", "ratio_discount"), [(CONTINUING, 0.9), (CONTINUING, 1.0), (EPISODES, 0.9)]
)
def test_the_expected_step_vanishes_at_the_fixed_point_of_exact_fits(
    problem: Problem, ratio_discount: float, link: LinkName
) -> None:
    fixed = fixed_weights(problem, link, ratio_discount)
    transition, share = expectation(problem)
    for start, vanishes in ((fixed, True), (fixed + 0.1, False)):
        learner = MatchedRatio(PHI, problem.rho, ratio_discount, constant(1.0), link, start)
        state = learner.init(len(share))
        learner.step(state, transition)
        assert bool(np.abs(share @ (state.w - start)).max() < 1e-9) is vanishes


def test_a_step_follows_the_rule() -> None:
    """By hand: z = (½, -1), γ̂ = ½, ρ = 2, so c(s) = ½ + ½e^½ and the score of s' moves by 0.1(2c - e^-1)."""
    learner = MatchedRatio(
        np.eye(2), np.full((2, 1), 2.0), 0.5, constant(0.1), initial_weights=np.array([0.5, -1.0])
    )
    state = learner.init(1)
    one, zero = np.array([1]), np.array([0])
    learner.step(state, Transition(zero, zero, np.zeros(1), one, np.array([False])))
    arrived = 2.0 * (0.5 + 0.5 * np.exp(0.5))
    np.testing.assert_allclose(state.w[0], [0.5, -1.0 + 0.1 * (arrived - np.exp(-1.0))])
    learner.step(state, Transition(one, zero, np.zeros(1), zero, np.array([True])))
    np.testing.assert_allclose(state.w[0, 0], 0.5 + 0.1 * (1.0 - np.exp(0.5)))
    np.testing.assert_allclose(learner.ratio(state), floored_ratio(np.exp(state.w), 0.5))


@pytest.mark.parametrize("link", ["exponential", "safe"])
@pytest.mark.parametrize("problem", [CONTINUING, EPISODES])
def test_one_hot_features_find_the_exact_ratio(problem: Problem, link: LinkName) -> None:
    """64 streams of 8000 steps; the mean over streams is within 0.03 of the exact ratio."""
    learner = MatchedRatio(np.eye(5), problem.rho, 0.9, robbins_monro(0.1, 1000), link)
    state = learner.init(64)
    stream = simulate(problem.mdp, problem.mu, 8000, 64, np.random.default_rng(1))
    train(learner, state, stream, observe=lambda _: None, every=8000)
    ratio = learner.ratio(state)
    assert ratio.min() >= 0.1
    np.testing.assert_allclose(ratio.mean(axis=0), problem.c_star(0.9), atol=0.03)


def test_it_corrects_a_value_learner() -> None:
    ratio = MatchedRatio(PHI, CONTINUING.rho, 0.9, constant(0.1))
    learner: Any = LinearTD(PHI, CONTINUING.rho, 0.9, constant(0.1), LearnedRatio(ratio))
    state = learner.init(3)
    (block,) = simulate(CONTINUING.mdp, CONTINUING.mu, 20, 3, np.random.default_rng(0))
    learner.update(state, block)
    assert state.theta.any()
    assert state.correction.count == 20


def blocks(num_steps: int) -> Transition:
    (block,) = simulate(EPISODES.mdp, EPISODES.mu, num_steps, 2, np.random.default_rng(0))
    return block


def test_bad_settings_are_refused() -> None:
    def learner(phi: Dense = PHI, ratio_discount: float = 0.9, link: Any = "exponential") -> Any:
        high = np.full(phi.shape[1], 400.0)
        return MatchedRatio(phi, EPISODES.rho, ratio_discount, constant(0.1), link, high)

    with pytest.raises(InputError, match=r"phi has no bias.* misses it by .*add a column of ones"):
        learner(PHI[:, 1:])
    with pytest.raises(InputError, match="link must be exponential or safe, but it is cubic"):
        learner(link="cubic")

    def feed(one: Any) -> None:
        one.update(one.init(2), blocks(100))

    def feed_by_step(one: Any) -> None:
        state = one.init(2)
        for transition in blocks(100).steps():
            one.step(state, transition)

    for learn in (feed, feed_by_step):
        with pytest.raises(InputError, match=r"ratio_discount = 1: use a ratio_discount below 1"):
            learn(learner(ratio_discount=1.0, link="safe"))
        with pytest.raises(InputError, match=r"overflows at z = \d.*use the safe link"):
            learn(learner())
    feed(learner(link="safe"))
    # Also where only the state arrived in has such a score.
    one_way = MatchedRatio(
        np.eye(2), np.ones((2, 1)), 0.9, constant(0.1), initial_weights=np.array([0.0, 800.0])
    )
    step = Transition._make(np.array([[field]]) for field in (0, 0, 0.0, 1, False))
    with pytest.raises(InputError, match=r"overflows at z = 800"):
        one_way.update(one_way.init(1), step)
