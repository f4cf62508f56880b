from typing import Any

import numpy as np
import pytest

from covshift.errors import InputError
from covshift.learners import (
    TDC,
    Emphasis,
    ExactRatio,
    ExactSimplex,
    LearnedRatio,
    LinearRatio,
    LinearTD,
    NoCorrection,
    RhoOnly,
    SampledSimplex,
    SoftNormalization,
    TabularRatio,
    constant,
    robbins_monro,
    train,
)
from covshift.rules import discounted_cop_target
from covshift.theory import ProjectedOperator, project_weighted_simplex
from covshift.theory.examples import Problem, bairds_star, boyan_chain, dirichlet, random_walk
from covshift.theory.simulation import Transition, simulate
from covshift.validation import Dense, Vector


def problem_and_features(seed: int = 0) -> tuple[Problem, Dense]:
    rng = np.random.default_rng(seed)
    problem = dirichlet(rng, 5, 3, discount=0.9)
    return problem, np.column_stack([np.ones(5), rng.standard_normal((5, 2))])


def expectation(problem: Problem) -> tuple[Transition, Vector]:
    """Every transition as a stream of its own, and its probability."""
    kernel = problem.mdp.dense_kernel()
    s, a, t = (index.ravel() for index in np.indices(kernel.shape))
    share = problem.d_mu[s] * problem.mu[s, a] * kernel[s, a, t]
    return Transition(s, a, problem.mdp.r[s, a], t, np.zeros(len(s), dtype=bool)), share


def feed(learner: Any, problem: Problem, num_steps: int, num_seeds: int = 64) -> Any:
    state = learner.init(num_seeds)
    stream = simulate(problem.mdp, problem.mu, num_steps, num_seeds, np.random.default_rng(1))
    train(learner, state, stream, observe=lambda _: None, every=num_steps)
    return state


def test_linear_learning_with_one_hot_features_is_tabular_learning() -> None:
    for problem in (problem_and_features()[0], random_walk()):
        size = problem.mdp.num_states
        table = TabularRatio(problem.rho, 0.9, constant(0.1))
        linear = LinearRatio(
            np.eye(size), problem.rho, 0.9, constant(0.1), initial_weights=np.ones(size)
        )
        np.testing.assert_allclose(
            linear.ratio(feed(linear, problem, 300)), table.ratio(feed(table, problem, 300))
        )


def test_a_linear_step_follows_the_rule() -> None:
    problem, phi = problem_and_features()
    learner = LinearRatio(
        phi, problem.rho, 0.9, constant(0.1), initial_weights=np.array([1.0, 2, 3])
    )
    transition, share = expectation(problem)
    state = learner.init(len(share))
    before = state.w.copy()
    learner.step(state, transition)
    rho = problem.rho[transition.s_tm1, transition.a_tm1]
    c = phi @ [1.0, 2, 3]
    error = discounted_cop_target(c[transition.s_tm1], rho, 0.9) - c[transition.s_t]
    np.testing.assert_allclose(state.w, before + 0.1 * error[:, None] * phi[transition.s_t])


def test_expected_step_vanishes_at_the_projected_fixed_point() -> None:
    problem, phi = problem_and_features()
    fixed = ProjectedOperator(problem.cop.discounted(0.9), phi, problem.d_mu).fixed_point_weights()
    learner = LinearRatio(phi, problem.rho, 0.9, constant(1.0), initial_weights=fixed)
    transition, share = expectation(problem)
    state = learner.init(len(share))
    learner.step(state, transition)
    np.testing.assert_allclose(share @ (state.w - fixed), 0.0, atol=1e-12)


def test_semi_gradient_learning_finds_the_projected_fixed_point() -> None:
    problem, phi = problem_and_features()
    learner = LinearRatio(phi, problem.rho, 0.5, robbins_monro(0.2, 200))
    ratio = learner.ratio(feed(learner, problem, 5000)).mean(axis=0)
    fixed = ProjectedOperator(problem.cop.discounted(0.5), phi, problem.d_mu).fixed_point()
    np.testing.assert_allclose(ratio, fixed, atol=0.05)


def test_simplex_constraints_hold_after_every_step() -> None:
    problem, phi = problem_and_features()
    start = project_weighted_simplex([1.0, 3.0, -2.0], phi, problem.d_mu)
    exact = LinearRatio(
        phi, problem.rho, 1.0, constant(0.3), ExactSimplex(problem.d_mu), initial_weights=start
    )
    state = exact.init(8)
    (block,) = simulate(problem.mdp, problem.mu, 40, 8, np.random.default_rng(0))
    for transition in block.steps():
        exact.step(state, transition)
        np.testing.assert_allclose(exact.ratio(state) @ problem.d_mu, 1.0, atol=1e-7)
        assert exact.ratio(state).min() > -1e-7

    sampled = LinearRatio(
        phi, problem.rho, 1.0, constant(0.3), SampledSimplex(), initial_weights=start
    )
    state = sampled.init(8)
    for transition in block.steps():
        sampled.step(state, transition)
        share = state.visits / state.visits.sum(axis=1, keepdims=True)
        ratio = sampled.ratio(state)
        np.testing.assert_allclose((share * ratio).sum(axis=1), 1.0, atol=1e-7)
        assert ratio[state.visits > 0].min() > -1e-7


def test_soft_normalization_pulls_the_mean_to_one() -> None:
    problem, phi = problem_and_features()
    no_bias = phi[:, 1:]
    means = []
    for weight in (None, 1.0, 10.0):
        soft = None if weight is None else SoftNormalization(weight)
        learner = LinearRatio(
            no_bias, problem.rho, 0.9, robbins_monro(0.05, 200), normalization=soft
        )
        ratio = learner.ratio(feed(learner, problem, 3000)).mean(axis=0)
        means.append(abs(float(problem.d_mu @ ratio) - 1.0))
    assert means[0] > means[1] > means[2]


def test_soft_normalizations_expected_direction_is_minus_the_gradient() -> None:
    problem, phi = problem_and_features()
    w = np.array([0.3, 0.5, -0.2])
    visits = np.rint(problem.d_mu * 1000).astype(int)
    d = visits / visits.sum()
    direction = SoftNormalization(2.0, batch_size=2).direction(
        np.tile(w, (200_000, 1)), phi, np.tile(visits, (200_000, 1)), np.random.default_rng(0)
    )
    expected = -2.0 * (d @ phi @ w - 1.0) * (d @ phi)
    error = direction.std(axis=0) / np.sqrt(len(direction))
    assert (np.abs(direction.mean(axis=0) - expected) < 5 * error).all()


def test_inverse_weighting_keeps_the_tabular_fixed_point() -> None:
    problem, _ = problem_and_features()
    learner = LinearRatio(
        np.eye(5),
        problem.rho,
        0.9,
        robbins_monro(0.3, 300),
        weight_floor=0.1,
        initial_weights=np.ones(5),
    )
    ratio = learner.ratio(feed(learner, problem, 8000)).mean(axis=0)
    np.testing.assert_allclose(ratio, problem.c_star(0.9), atol=0.05)


def test_errors_are_weighted_by_the_inverse_ratio() -> None:
    problem, phi = problem_and_features()
    start = np.array([1.0, 0.3, 0.2])
    transition, share = expectation(problem)
    plain = LinearRatio(phi, problem.rho, 0.9, constant(1.0), initial_weights=start)
    dual = LinearRatio(
        phi, problem.rho, 0.9, constant(1.0), weight_floor=0.1, initial_weights=start
    )
    moved = []
    for learner in (plain, dual):
        state = learner.init(len(share))
        learner.step(state, transition)
        moved.append(state.w - start)
        mean_weight = state.mean_weight
    c_t = np.maximum(phi @ start, 0.1)[transition.s_t]
    np.testing.assert_allclose(moved[1] * mean_weight[:, None], moved[0] / c_t[:, None])


def test_expected_td_steps_are_those_of_the_corrected_distribution() -> None:
    problem, phi = problem_and_features()
    transition, share = expectation(problem)
    theta = np.array([0.5, -1.0, 2.0])

    def step(correction: Any) -> Vector:
        learner = LinearTD(phi, problem.rho, 0.9, constant(1.0), correction, theta)
        state = learner.init(len(share))
        learner.update(state, Transition._make(field[None] for field in transition))
        return np.asarray(share @ (state.theta - theta))

    def semi_gradient(d: Vector, policy: Dense) -> Vector:
        chain, reward = problem.mdp.chain(policy), problem.mdp.r_pi(policy)
        v = phi @ theta
        return np.asarray(phi.T @ (d * (reward + 0.9 * chain.p @ v - v)))

    np.testing.assert_allclose(step(NoCorrection()), semi_gradient(problem.d_mu, problem.mu))
    np.testing.assert_allclose(step(RhoOnly()), semi_gradient(problem.d_mu, problem.pi))
    np.testing.assert_allclose(
        step(ExactRatio(problem.c_star())), semi_gradient(problem.d_pi, problem.pi)
    )


def test_corrected_td_finds_the_on_policy_fixed_point() -> None:
    problem = random_walk(pi_right=0.6).restart()
    phi = np.column_stack([np.ones(6), np.arange(6.0) / 5])
    evaluated = Problem(problem.mdp, problem.pi, problem.mu, 0.9)
    expected = ProjectedOperator(evaluated.bellman, phi, problem.d_pi).fixed_point()
    steps = robbins_monro(0.1, 500)
    for correction in (
        ExactRatio(problem.c_star()),
        LearnedRatio(TabularRatio(problem.rho, 0.999, robbins_monro(0.3, 100), normalize=True)),
    ):
        learner: Any = LinearTD(phi, problem.rho, 0.9, steps, correction)
        value = learner.value(feed(learner, problem, 20_000)).mean(axis=0)
        np.testing.assert_allclose(value, expected, atol=0.05)


def test_bairds_star_diverges_without_and_not_with_the_ratio() -> None:
    star, start = bairds_star(), np.array([1, 1, 1, 1, 1, 1, 10, 1.0])
    sizes = {}
    for name, correction in (("rho", RhoOnly()), ("c rho", ExactRatio(star.c_star()))):
        learner: Any = LinearTD(star.phi, star.rho, 0.99, constant(0.01), correction, start)
        sizes[name] = np.abs(feed(learner, star, 3000, 16).theta).max()
    assert sizes["rho"] > 1e3
    assert sizes["c rho"] < 20
    tdc = TDC(star.phi, star.rho, 0.99, constant(0.005), constant(0.05), start)
    assert np.abs(feed(tdc, star, 3000, 16).theta).max() < 20


def test_the_trace_averages_to_the_ratio() -> None:
    # B2: (1 - γ̂) E[F | s] = c(s), and the correction starts from the trace before it moves on.
    problem = random_walk(pi_right=0.55).restart()
    emphasis = Emphasis(0.5)
    trace = emphasis.init(400)
    total, visits = np.zeros(6), np.zeros(6)
    blocks = simulate(problem.mdp, problem.mu, 1500, 400, np.random.default_rng(0))
    for count, block in enumerate(blocks):
        rho = problem.rho[block.s_tm1, block.a_tm1]
        traces = emphasis.weights(trace, rho, block) / rho
        if count > 0:
            np.add.at(total, block.s_tm1, traces)
            np.add.at(visits, block.s_tm1, 1)
    np.testing.assert_allclose(0.5 * total / visits, problem.c_star(0.5), rtol=0.03)


def test_tdc_finds_the_projected_fixed_point_of_the_behavior() -> None:
    problem = random_walk(pi_right=0.6).restart()
    phi = np.column_stack([np.ones(6), np.arange(6.0) / 5])
    evaluated = Problem(problem.mdp, problem.pi, problem.mu, 0.9)
    learner = TDC(phi, problem.rho, 0.9, robbins_monro(0.1, 2000), robbins_monro(0.3, 2000))
    value = learner.value(feed(learner, problem, 20_000)).mean(axis=0)
    expected = ProjectedOperator(evaluated.bellman, phi, problem.d_mu).fixed_point()
    np.testing.assert_allclose(value, expected, atol=0.05)


def one_step(problem: Problem, s: int, a: int, t: int, *, ended: bool) -> Transition:
    """A block of one step of one seed."""
    fields = (s, a, problem.mdp.r[s, a], t, ended)
    return Transition._make(np.array([[field]]) for field in fields)


def test_nothing_is_bootstrapped_past_the_end_of_an_episode() -> None:
    chain = boyan_chain()
    theta = np.array([1.0, 2.0, 3.0, 4.0])
    learner = LinearTD(chain.phi, chain.rho, 1.0, constant(1.0), RhoOnly(), theta)
    state = learner.init(1)
    learner.update(state, one_step(chain, 0, 0, 11, ended=True))
    error = chain.rho[0, 0] * (-2.0 - chain.phi[0] @ theta)
    np.testing.assert_allclose(state.theta[0], theta + error * chain.phi[0])
    tdc = TDC(chain.phi, chain.rho, 1.0, constant(1.0), constant(1.0), theta)
    both = tdc.init(1)
    both.h[:] = 1.0
    tdc.update(both, one_step(chain, 0, 0, 11, ended=True))
    np.testing.assert_allclose(both.theta[0], theta + error * chain.phi[0])


def test_boyans_chain_is_learned() -> None:
    chain = boyan_chain()
    steps = robbins_monro(0.2, 2000)
    for correction in (RhoOnly(), ExactRatio(chain.c_star())):
        learner: Any = LinearTD(chain.phi, chain.rho, 1.0, steps, correction)
        value = learner.value(feed(learner, chain, 20_000)).mean(axis=0)
        np.testing.assert_allclose(value, chain.bellman.fixed_point(), atol=0.3)


def test_the_trace_restarts_with_each_episode() -> None:
    walk = random_walk()
    emphasis, trace = Emphasis(0.9), np.array([5.0])
    emphasis.weights(trace, np.array([[2.0]]), one_step(walk, 2, 1, 3, ended=False))
    np.testing.assert_allclose(trace, [0.9 * 2 * 5 + 1])
    emphasis.weights(trace, np.array([[2.0]]), one_step(walk, 4, 1, 5, ended=True))
    np.testing.assert_allclose(trace, [1.0])


def test_a_negative_learned_ratio_has_weight_zero() -> None:
    problem, phi = problem_and_features()
    ratio = LinearRatio(
        phi, problem.rho, 0.9, constant(0.1), initial_weights=np.array([-1.0, 0, 0])
    )
    learner = LinearTD(phi, problem.rho, 0.9, constant(0.5), LearnedRatio(ratio))
    state = learner.init(1)
    learner.update(state, one_step(problem, 0, 1, 2, ended=False))
    assert not state.theta.any()
    assert (state.correction.w != ratio.init(1).w).any()


def test_weights_have_a_floor_and_a_running_mean() -> None:
    problem, _ = problem_and_features()
    start = np.array([0.01, 2.0, -1.0, 0.5, 1.0])
    learner = LinearRatio(
        np.eye(5), problem.rho, 0.9, constant(0.5), weight_floor=0.2, initial_weights=start
    )
    state = learner.init(1)
    c, mean = start.copy(), 0.0
    for count, (s, a, t) in enumerate([(1, 0, 0), (3, 1, 2), (1, 2, 4), (0, 0, 1)], start=1):
        weight = 1.0 / max(c[t], 0.2)
        mean += (weight - mean) / count
        target = 0.9 * problem.rho[s, a] * c[s] + 0.1
        c[t] += 0.5 * weight / mean * (target - c[t])
        learner.update(state, one_step(problem, s, a, t, ended=False))
        np.testing.assert_allclose(state.w[0], c)
    np.testing.assert_array_equal(state.visits[0], [1, 1, 1, 0, 1])
    scale = (np.maximum(c, 0) * [1, 1, 1, 0, 1]).sum() / 4
    np.testing.assert_allclose(learner.ratio(state)[0], c / scale)


def test_episodes_keep_the_scale_of_inverse_weighting() -> None:
    walk = random_walk()
    learner = LinearRatio(
        np.eye(6),
        walk.rho,
        0.9,
        robbins_monro(0.3, 300),
        weight_floor=0.1,
        initial_weights=np.ones(6),
    )
    ratio = learner.ratio(feed(learner, walk, 8000)).mean(axis=0)
    np.testing.assert_allclose(ratio, walk.c_star(0.9), atol=0.03)
    soft = LinearRatio(
        np.eye(6), walk.rho, 0.9, constant(0.1), normalization=SoftNormalization(1.0)
    )
    with pytest.raises(InputError, match="has another mean than 1"):
        feed(soft, walk, 200)
    dead = LinearRatio(np.eye(6), walk.restart().rho, 1.0, constant(0.1), weight_floor=0.1)
    assert np.isfinite(dead.ratio(feed(dead, walk.restart(), 50))).all()


def test_bad_settings_are_refused() -> None:
    problem, phi = problem_and_features()
    with pytest.raises(InputError, match=r"phi has shape \(4, 3\), but \(5, any\) is needed"):
        LinearRatio(phi[:4], problem.rho, 0.9, constant(0.1))
    with pytest.raises(InputError, match="weight_floor must be positive, but it is 0"):
        LinearRatio(phi, problem.rho, 0.9, constant(0.1), weight_floor=0.0)
    with pytest.raises(InputError, match="trace_discount must lie in"):
        Emphasis(5.0)
    with pytest.raises(InputError, match=r"initial_weights has shape \(2,\), but \(3,\) is needed"):
        LinearTD(phi, problem.rho, 0.9, constant(0.1), RhoOnly(), np.ones(2)).init(1)
    with pytest.raises(InputError, match="phi has an entry that is not a finite number: nan"):
        TDC(phi * np.nan, problem.rho, 0.9, constant(0.1), constant(0.1))
    with pytest.raises(InputError, match=r"discount must lie in \[0, 1\], but it is 2"):
        LinearTD(phi, problem.rho, 2.0, constant(0.1), NoCorrection())
