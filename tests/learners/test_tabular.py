import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.learners import TabularCorrectedTD, TabularRatio, constant, robbins_monro, train
from covshift.theory import FiniteMDP
from covshift.theory.examples import Problem, bairds_star, dirichlet, random_walk
from covshift.theory.simulation import Transition, simulate
from covshift.validation import Dense, Vector

SEEDS = st.integers(0, 2**32 - 1)


def all_transitions(problem: Problem) -> tuple[Transition, Vector]:
    """Every transition as a stream of its own, starts included, and its share of a μ-stream."""
    kernel = problem.mdp.dense_kernel()
    s, a, t = (index.ravel() for index in np.indices(kernel.shape))
    mass = problem.d_mu[s] * problem.mu[s, a] * kernel[s, a, t]
    initial = np.zeros(len(s), dtype=bool)
    if problem.mdp.d_0 is not None:
        # What ends an episode in (s, a) leads to a start t, drawn from d_0.
        ends = (
            problem.d_mu[s] * problem.mu[s, a] * (1 - kernel.sum(axis=2))[s, a] * problem.mdp.d_0[t]
        )
        s, a, t = (np.concatenate([index, index]) for index in (s, a, t))
        mass, initial = np.concatenate([mass, ends]), np.repeat([False, True], len(initial))
    return Transition(s, a, problem.mdp.r[s, a], t, initial), mass / mass.sum()


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("episodes", [False, True])
def test_the_expected_update_applies_the_operator(gamma: float, episodes: bool) -> None:
    rng = np.random.default_rng(0)
    problem = random_walk(revisits_start=True) if episodes else dirichlet(rng, 4, 3)
    transition, share = all_transitions(problem)
    c = rng.random(problem.mdp.num_states)
    learner = TabularRatio(problem.rho, gamma, constant(0.5))
    state = learner.init(len(share))
    state.c[:] = c
    learner.step(state, transition)
    moved = share @ (state.c - c)
    # Each state moves by α times its share of the stream times (Y_γ̂c - c).
    d_mu = problem.d_mu / problem.d_mu.sum()
    expected = 0.5 * d_mu * (problem.cop.discounted(gamma).apply(c) - c)
    np.testing.assert_allclose(moved, expected, atol=1e-12)


def learned(problem: Problem, learner: TabularRatio, num_steps: int = 20_000) -> Dense:
    state = learner.init(64)
    stream = simulate(problem.mdp, problem.mu, num_steps, 64, np.random.default_rng(1))
    train(learner, state, stream, observe=lambda _: None, every=num_steps)
    return learner.ratio(state)


@pytest.mark.parametrize(
    "options",
    [
        {"ratio_discount": 0.9},
        {"ratio_discount": 0.9, "num_steps": 3},
        {"ratio_discount": 1.0, "normalize": True},
    ],
)
def test_learned_ratios_converge_to_the_exact_ones(options: dict[str, float]) -> None:
    problem = random_walk(pi_right=0.6).restart()
    learner = TabularRatio(problem.rho, step_size=robbins_monro(0.3, 100), **options)  # type: ignore[arg-type]
    ratios = learned(problem, learner)
    error = ratios.std(axis=0) / np.sqrt(64)
    exact = problem.c_star(float(options["ratio_discount"]))
    assert np.abs(ratios.mean(axis=0) - exact).max() < 0.03 + 4 * error.max()
    # A wrong time index learns c of the reversed chain, and a lost (1 - γ̂) collapses: both are far off.
    assert np.abs(exact - 1.0).max() > 0.25


def test_episodes_are_learned_with_ratio_one_at_the_start() -> None:
    problem = random_walk()
    ratios = learned(problem, TabularRatio(problem.rho, 0.9, robbins_monro(0.3, 100)))
    np.testing.assert_array_equal(ratios[:, -1], 1.0)
    np.testing.assert_allclose(ratios.mean(axis=0), problem.c_star(0.9), atol=0.03)


def test_without_normalization_undiscounted_cop_loses_the_scale() -> None:
    problem = random_walk(pi_right=0.6).restart()
    ratios = learned(problem, TabularRatio(problem.rho, 1.0, robbins_monro(0.3, 100)))
    scale = ratios @ problem.d_mu
    assert scale.std() > 0.2
    shape = (ratios / scale[:, None]).mean(axis=0)
    np.testing.assert_allclose(shape, problem.c_star(), atol=0.05)


def test_seeds_do_not_affect_each_other() -> None:
    problem = dirichlet(np.random.default_rng(3), 4, 2)
    transitions = list(simulate(problem.mdp, problem.mu, 200, 5, np.random.default_rng(0)))
    learner = TabularRatio(problem.rho, 0.9, robbins_monro(0.5), num_steps=3, normalize=True)
    together = learner.init(5)
    train(learner, together, transitions, observe=lambda _: None, every=200)
    alone = learner.init(1)
    only = [Transition._make(field[:, 2:3] for field in block) for block in transitions]
    train(learner, alone, only, observe=lambda _: None, every=200)
    np.testing.assert_array_equal(alone.c[0], together.c[2])


def test_ratio_and_value_are_learned_together() -> None:
    problem = random_walk(pi_right=0.6).restart()
    ratio = TabularRatio(problem.rho, 0.99, robbins_monro(0.3, 100))
    learner = TabularCorrectedTD(ratio, 0.9, robbins_monro(0.3, 300))
    state = learner.init(64)
    stream = simulate(problem.mdp, problem.mu, 20_000, 64, np.random.default_rng(1))
    train(learner, state, stream, observe=lambda _: None, every=20_000)
    np.testing.assert_allclose(state.v.mean(axis=0), problem.mdp.value(problem.pi, 0.9), atol=0.03)


def test_two_step_targets_apply_the_operator_twice() -> None:
    # Every path of two steps as a seed of its own: the mean of the two-step target is Y_γ̂².
    problem = dirichlet(np.random.default_rng(5), 3, 2)
    kernel = problem.mdp.dense_kernel()
    s, a, t, b, u = (index.ravel() for index in np.indices((3, 2, 3, 2, 3)))
    share = (
        problem.d_mu[s] * problem.mu[s, a] * kernel[s, a, t] * problem.mu[t, b] * kernel[t, b, u]
    )
    never = np.zeros(len(s), dtype=bool)
    c = np.array([0.3, 1.0, 2.0])
    learner = TabularRatio(problem.rho, 0.9, constant(0.5), num_steps=2)
    state = learner.init(len(s))
    state.c[:] = c
    learner.step(state, Transition(s, a, problem.mdp.r[s, a], t, never))
    state.c[:] = c
    learner.step(state, Transition(t, b, problem.mdp.r[t, b], u, never))
    expected = problem.d_mu * (problem.cop.discounted(0.9).power(2).apply(c) - c)
    np.testing.assert_allclose(share @ (state.c - c), 0.5 * expected, atol=1e-12)


def test_values_of_episodes_are_learned_without_a_discount() -> None:
    problem = random_walk(pi_right=0.6)
    ratio = TabularRatio(problem.rho, 0.9, robbins_monro(0.3, 100))
    learner = TabularCorrectedTD(ratio, 1.0, robbins_monro(0.3, 300))
    state = learner.init(64)
    stream = simulate(problem.mdp, problem.mu, 20_000, 64, np.random.default_rng(1))
    train(learner, state, stream, observe=lambda _: None, every=20_000)
    np.testing.assert_allclose(state.v.mean(axis=0), problem.bellman.fixed_point(), atol=0.03)


def test_negative_ratios_have_weight_zero() -> None:
    problem = dirichlet(np.random.default_rng(0), 3, 2)
    ratio = TabularRatio(problem.rho, 0.9, constant(0.1), initial_ratio=-1)
    learner = TabularCorrectedTD(ratio, 0.9, constant(0.5))
    state = learner.init(4)
    for block in simulate(problem.mdp, problem.mu, 1, 4, np.random.default_rng(0)):
        learner.update(state, block)
    assert not state.v.any()


def test_normalization_survives_a_mean_of_zero_and_refuses_episodes() -> None:
    star = bairds_star()
    learner = TabularRatio(star.rho, 1.0, robbins_monro(1.0), normalize=True)
    assert np.isfinite(learned(star, learner, 2000)).all()
    walk = random_walk()
    with pytest.raises(InputError, match="has another mean than 1"):
        learned(walk, TabularRatio(walk.rho, 1.0, constant(0.1), normalize=True), 200)


def test_episodes_of_one_step_can_be_simulated() -> None:
    mdp = FiniteMDP(np.zeros((2, 1, 2)), np.ones((2, 1)), np.array([0.5, 0.5]))
    for block in simulate(mdp, np.ones((2, 1)), 20, 5, np.random.default_rng(0)):
        assert block.is_initial_t.all()


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match=r"ratio_discount must lie in \[0, 1\], but it is 1\.5"):
        TabularRatio(np.ones((2, 2)), 1.5, constant(0.1))
    with pytest.raises(InputError, match="num_steps must be at least 1"):
        TabularRatio(np.ones((2, 2)), 0.5, constant(0.1), num_steps=0)
    with pytest.raises(InputError, match="discount must lie in"):
        TabularCorrectedTD(TabularRatio(np.ones((2, 2)), 0.5, constant(0.1)), 2.0, constant(0.1))
    with pytest.raises(InputError, match="every must be at least 1, but it is 0"):
        learned(random_walk(), TabularRatio(random_walk().rho, 0.5, constant(0.1)), 0)
    with pytest.raises(InputError, match="step_size must be positive, but it is 0"):
        constant(0.0)
    with pytest.raises(InputError, match=r"power must lie in \(0\.5, 1\]"):
        robbins_monro(0.1, power=0.5)


def test_schedules_by_hand() -> None:
    assert constant(0.1)(7) == 0.1
    np.testing.assert_allclose(constant(0.1)(np.arange(3)), [0.1, 0.1, 0.1])
    np.testing.assert_allclose(
        robbins_monro(0.4, halfway=10)(np.array([0, 10, 30])), [0.4, 0.2, 0.1]
    )


@given(SEEDS)
def test_simulated_transitions_have_the_probabilities_of_the_mdp(seed: int) -> None:
    problem = dirichlet(np.random.default_rng(seed), 3, 2)
    counts = np.zeros((3, 2, 3))
    for block in simulate(problem.mdp, problem.mu, 40, 2000, np.random.default_rng(seed)):
        np.add.at(counts, (block.s_tm1, block.a_tm1, block.s_t), 1)
        assert not block.is_initial_t.any()
    law = problem.d_mu[:, None, None] * problem.mu[:, :, None] * problem.mdp.dense_kernel()
    # 2000 independent streams of 40 correlated steps: 6 standard errors of the streams' means at most.
    assert np.abs(counts / counts.sum() - law).max() < 6 * 0.5 / np.sqrt(2000)


def test_simulated_episodes_follow_each_other() -> None:
    problem = random_walk()
    starts, visits, before = 0, np.zeros(6), None
    for block in simulate(problem.mdp, problem.mu, 2000, 50, np.random.default_rng(0)):
        for transition in block.steps():
            assert before is None or (transition.s_tm1 == before).all()
            before = transition.s_t
        assert (block.s_t[block.is_initial_t] == 5).all()
        np.add.at(visits, block.s_tm1, 1)
        starts += int(block.is_initial_t.sum())
    np.testing.assert_allclose(visits / starts, problem.d_mu, rtol=0.05)
