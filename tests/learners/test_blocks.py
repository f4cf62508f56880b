"""The compiled updates of blocks against the learners' steps in NumPy and against the rules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.learners import (
    Emphasis,
    ExactRatio,
    LearnedRatio,
    LinearRatio,
    LinearTD,
    MatchedRatio,
    NoCorrection,
    RhoOnly,
    TabularCorrectedTD,
    TabularRatio,
    constant,
    robbins_monro,
    train,
)
from covshift.rules import td_error
from covshift.theory.examples import Problem, dirichlet, random_walk
from covshift.theory.simulation import Transition, simulate
from covshift.validation import Dense

CONTINUING = dirichlet(np.random.default_rng(0), 5, 3, num_features=3)
EPISODES = random_walk(revisits_start=True)
STEPS = robbins_monro(0.3, 20.0)


def blocks_of(problem: Problem, lengths: tuple[int, ...] = (1, 7, 1, 31)) -> list[Transition]:
    (block,) = simulate(problem.mdp, problem.mu, sum(lengths), 6, np.random.default_rng(1))
    ends = np.cumsum(lengths)
    return [block.part(end - length, end) for length, end in zip(lengths, ends, strict=True)]


def ratio_learners(problem: Problem) -> dict[str, Any]:
    rng, size = np.random.default_rng(2), problem.mdp.num_states
    phi = np.column_stack([np.ones(size), rng.standard_normal((size, 2))])
    start = np.array([1.0, 0.1, -0.2])
    return {
        "table": TabularRatio(problem.rho, 0.9, STEPS),
        "COP-TD": TabularRatio(problem.rho, 1.0, STEPS),
        "n-step": TabularRatio(problem.rho, 0.9, STEPS, num_steps=3),
        "normalized": TabularRatio(CONTINUING.rho, 1.0, STEPS, 2, normalize=True),
        "linear": LinearRatio(phi, problem.rho, 0.9, STEPS),
        "1/c": LinearRatio(phi, problem.rho, 0.9, STEPS, weight_floor=0.1, initial_weights=start),
        "matched": MatchedRatio(phi, problem.rho, 0.9, robbins_monro(0.02, 20.0)),
        "safe": MatchedRatio(phi, problem.rho, 0.9, STEPS, "safe", 2.0 * start),
    }


@pytest.mark.parametrize("problem", [CONTINUING, EPISODES])
@pytest.mark.parametrize("name", ratio_learners(CONTINUING))
def test_an_update_is_its_steps(name: str, problem: Problem) -> None:
    if name == "normalized":
        problem = CONTINUING
    learner = ratio_learners(problem)[name]
    compiled, plain = learner.init(6), learner.init(6)
    for block in blocks_of(problem):
        learner.update(compiled, block)
        for transition in block.steps():
            learner.step(plain, transition)
        # A table is equal to the bit; sums over features may be added in another order.
        tolerance = 0.0 if isinstance(learner, TabularRatio) else 1e-12
        found, expected = vars(compiled), vars(plain)
        for key in set(found) - {"rng", "window"}:
            np.testing.assert_allclose(found[key], expected[key], rtol=tolerance, err_msg=key)
    moved = np.abs(learner.ratio(plain) - learner.ratio(learner.init(6)))
    assert moved.max() > 0.05


CORRECTIONS: dict[str, Callable[[], Any]] = {
    "none": NoCorrection,
    "rho": RhoOnly,
    "exact": lambda: ExactRatio(np.linspace(0.5, 2.0, 5)),
    "emphasis": lambda: Emphasis(0.8),
    "learned": lambda: LearnedRatio(TabularRatio(EPISODES.rho, 0.9, STEPS)),
}


def values_by_hand(correction: Any, phi: Dense, blocks: list[Transition], by_visits: bool) -> Dense:
    """TD(0) for one transition after the other, each by the rule."""
    theta, state = np.zeros((6, phi.shape[1])), correction.init(6)
    visits = np.zeros((6, len(phi)), dtype=int)
    transitions = [transition for block in blocks for transition in block.steps()]
    for count, transition in enumerate(transitions):
        s, a, r, t, ended = transition
        one = Transition._make(field[None] for field in transition)
        weight = correction.weights(state, EPISODES.rho[s, a][None], one)[0]
        for seed in range(6):
            v_s, v_t = phi[s[seed]] @ theta[seed], phi[t[seed]] @ theta[seed]
            error = td_error(v_s, r[seed], 0.0 if ended[seed] else 0.9, v_t)
            size = STEPS(visits[seed, s[seed]] if by_visits else count)
            visits[seed, s[seed]] += 1
            theta[seed] += size * weight[seed] * error * phi[s[seed]]
    return theta


@pytest.mark.parametrize("name", CORRECTIONS)
def test_values_are_learned_by_the_rule(name: str) -> None:
    phi = np.random.default_rng(3).standard_normal((5, 3))
    blocks = blocks_of(EPISODES)
    learner: Any = LinearTD(phi, EPISODES.rho, 0.9, STEPS, CORRECTIONS[name]())
    state = learner.init(6)
    for block in blocks:
        learner.update(state, block)
    expected = values_by_hand(CORRECTIONS[name](), phi, blocks, by_visits=False)
    np.testing.assert_allclose(state.theta, expected, rtol=1e-10)
    assert np.abs(expected).max() > 0.05


def test_a_table_of_values_is_learned_by_the_rule() -> None:
    blocks = blocks_of(EPISODES)
    ratio = TabularRatio(EPISODES.rho, 0.9, STEPS)
    learner = TabularCorrectedTD(ratio, 0.9, STEPS)
    state = learner.init(6)
    for block in blocks:
        learner.update(state, block)
    expected = values_by_hand(LearnedRatio(ratio), np.eye(5), blocks, by_visits=True)
    np.testing.assert_allclose(state.v, expected, rtol=1e-10)


def test_garbage_before_an_initial_state_does_not_matter() -> None:
    learner = TabularRatio(np.ones((3, 1)), 0.9, constant(1.0))
    state = learner.init(1)
    state.c[0] = [np.nan, np.inf, 5.0]
    zero, one = np.zeros((1, 1), dtype=np.int64), np.ones((1, 1), dtype=np.int64)
    learner.update(state, Transition(zero, zero, np.zeros((1, 1)), 2 * one, one.astype(bool)))
    assert state.c[0, 2] == 1.0


@pytest.mark.parametrize("every", [1, 7, 20, 100])
def test_observations_come_every_so_many_steps_however_the_data_are_cut(every: int) -> None:
    learner = TabularRatio(CONTINUING.rho, 0.9, STEPS)
    whole, cut = blocks_of(CONTINUING, (40,)), blocks_of(CONTINUING, (3, 30, 2, 5))
    seen = [
        train(learner, learner.init(6), blocks, observe=lambda state: state.c.copy(), every=every)
        for blocks in (whole, cut)
    ]
    assert len(seen[0]) == 1 + 40 // every
    np.testing.assert_array_equal(seen[0], seen[1])


def test_blocks_that_do_not_fit_the_learner_are_refused() -> None:
    learner = TabularRatio(CONTINUING.rho, 0.9, STEPS)
    (block,) = blocks_of(CONTINUING, (3,))
    with pytest.raises(InputError, match="there is no state 5: the learner has 5 states"):
        learner.update(learner.init(6), block._replace(s_t=block.s_t * 0 + 5))
    with pytest.raises(InputError, match="there is no state -1"):
        learner.update(learner.init(6), block._replace(s_t=block.s_t * 0 - 1))
    value = LinearTD(CONTINUING.phi, CONTINUING.rho, 0.9, STEPS, RhoOnly())
    with pytest.raises(InputError, match=r"states have shape \(3, 6\), but \(steps, 2\) is needed"):
        value.update(value.init(2), block)
