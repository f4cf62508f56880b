import clarabel
import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.rules import EXPONENTIAL, LINKS, SAFE, Link, matching_loss
from covshift.theory import (
    CopOperator,
    MarkovChain,
    MatchingOperator,
    fit_matching,
    kl_divergence,
    project_matching,
)
from covshift.theory.examples import dirichlet, episodic

SEEDS = st.integers(0, 2**32 - 1)
EACH_LINK = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)


def features(rng: np.random.Generator, size: int, count: int) -> np.ndarray:
    return np.column_stack([np.ones(size), rng.standard_normal((size, count))])


def cone_solver(target: np.ndarray, phi: np.ndarray, d: np.ndarray) -> np.ndarray:
    """min Σ d(t - T φᵀθ) subject to exp(φᵀθ) ≤ t, in θ and t, by an interior-point solver."""
    size, count = phi.shape
    rows = []
    for state in range(size):
        # Slack (φᵀθ, 1, t) in the cone y·exp(x/y) ≤ z.
        rows += [np.append(-phi[state], np.zeros(size)), np.zeros(count + size)]
        rows += [np.append(np.zeros(count), -np.eye(size)[state])]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    solution = clarabel.DefaultSolver(
        sp.csc_matrix((count + size, count + size)),
        np.append(-(d * target) @ phi, d),
        sp.csc_matrix(np.array(rows)),
        np.tile([0.0, 1.0, 0.0], size),
        [clarabel.ExponentialConeT()] * size,
        settings,
    ).solve()
    return np.asarray(solution.x)[:count]


def test_divergence_by_hand_and_by_a_loop() -> None:
    # 2 log 2 - 2 + 1 with weight ½, and nothing where both agree.
    expected = 0.5 * (2 * np.log(2) - 1)
    assert kl_divergence([2.0, 3.0], [1.0, 3.0], [0.5, 0.5]) == pytest.approx(expected)
    assert kl_divergence([0.0, 1.0], [2.0, 1.0], [0.5, 0.5]) == pytest.approx(1.0)
    assert kl_divergence([1.0, 1.0], [0.0, 1.0], [0.5, 0.5]) == np.inf
    rng = np.random.default_rng(0)
    x, y, d = rng.exponential(size=(3, 6))
    slow = sum(d[s] * (x[s] * np.log(x[s] / y[s]) - x[s] + y[s]) for s in range(6))
    assert kl_divergence(x, y, d) == pytest.approx(slow)
    assert slow > 0


@given(SEEDS)
def test_fit_agrees_with_a_cone_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    phi, d, target = features(rng, 6, 2), rng.dirichlet(np.ones(6)), rng.exponential(2.0, 6)
    ours = fit_matching(target, phi, d)
    np.testing.assert_allclose(ours, cone_solver(target, phi, d), atol=1e-4)


@EACH_LINK
@given(seed=SEEDS)
def test_fit_agrees_with_a_general_minimizer(link: Link, seed: int) -> None:
    rng = np.random.default_rng(seed)
    phi, d, target = features(rng, 6, 2), rng.dirichlet(np.ones(6)), rng.exponential(2.0, 6)

    def loss(theta: np.ndarray) -> float:
        z = np.minimum(phi @ theta, 50.0)  # Its trial steps may overflow.
        return float(d @ matching_loss(z, target, link))

    ours = fit_matching(target, phi, d, link)
    other = scipy.optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", tol=1e-12)
    np.testing.assert_allclose(ours, other.x, atol=1e-4)
    assert loss(ours) <= loss(other.x) + 1e-12


@EACH_LINK
@given(seed=SEEDS)
def test_the_features_see_no_difference_between_a_fit_and_its_targets(
    link: Link, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    phi, d = features(rng, 7, 3), rng.dirichlet(np.full(7, 0.5)) + 1e-6
    target = np.exp(rng.normal(0.0, 4.0, 7))
    fitted = project_matching(target, phi, d, link)
    scale = float(d @ target)
    np.testing.assert_allclose(phi.T @ (d * (fitted - target)) / scale, 0.0, atol=1e-10)
    assert d @ fitted == pytest.approx(scale, rel=1e-10)


def test_simple_families_by_hand() -> None:
    d, target = np.array([0.2, 0.3, 0.5]), np.array([1.0, 4.0, 2.0])
    # A bias alone: the mean 0.2 + 1.2 + 1.0. One-hot features: the targets themselves.
    for link in (EXPONENTIAL, SAFE):
        np.testing.assert_allclose(project_matching(target, np.ones((3, 1)), d, link), 2.4)
        np.testing.assert_allclose(project_matching(target, np.eye(3), d, link), target)
    # Two cells: the first two states share (0.2 + 1.2)/0.5.
    cells = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(project_matching(target, cells, d), [2.8, 2.8, 2.0])


def test_targets_of_zero_are_approached_and_repeated_features_fit_no_better() -> None:
    d, target = np.array([0.5, 0.25, 0.25]), np.array([0.0, 1.0, 3.0])
    np.testing.assert_allclose(project_matching(target, np.eye(3), d), target, atol=1e-9)
    rng = np.random.default_rng(0)
    phi, target = features(rng, 5, 1), rng.exponential(size=5)
    d = rng.dirichlet(np.ones(5))
    once, twice = fit_matching(target, phi, d), fit_matching(target, np.hstack([phi, phi]), d)
    np.testing.assert_allclose(twice, np.concatenate([once, once]) / 2, atol=1e-9)


@given(SEEDS, st.booleans(), st.booleans(), st.sampled_from([0.3, 0.9, 0.99]))
def test_one_hot_features_give_the_operator_itself(
    seed: int, episodes: bool, floored: bool, gamma: float
) -> None:
    rng = np.random.default_rng(seed)
    problem = episodic(rng, 4, 2, single_start=False) if episodes else dirichlet(rng, 4, 2)
    operator = problem.cop.discounted(gamma)
    x = rng.exponential(size=4)
    for link in (EXPONENTIAL, SAFE):
        matching = MatchingOperator(operator, np.eye(4), link, floored)
        np.testing.assert_allclose(matching.apply(x), operator.apply(x), rtol=1e-8)
        np.testing.assert_allclose(matching.fixed_point(), problem.c_star(gamma), rtol=1e-7)


@settings(max_examples=15)
@given(SEEDS, st.booleans(), st.sampled_from([0.5, 0.9, 1.0]))
def test_fixed_points_are_where_plain_iteration_ends(
    seed: int, floored: bool, gamma: float
) -> None:
    rng = np.random.default_rng(seed)
    problem = dirichlet(rng, 5, 2)
    for link in (EXPONENTIAL, SAFE):
        matching = MatchingOperator(
            problem.cop.discounted(gamma), features(rng, 5, 2), link, floored
        )
        c = np.ones(5)
        for _ in range(300):
            c = matching.apply(c)
        fixed = matching.fixed_point()
        np.testing.assert_allclose(fixed, c, rtol=1e-6)
        np.testing.assert_allclose(matching.apply(fixed), fixed, rtol=1e-9)
        assert problem.d_mu @ fixed == pytest.approx(1.0, abs=1e-9)
        if floored:
            assert fixed.min() >= 1.0 - gamma


def test_without_discount_the_start_keeps_its_mean() -> None:
    rng = np.random.default_rng(3)
    problem = dirichlet(rng, 5, 2)
    matching = MatchingOperator(problem.cop.discounted(1.0), features(rng, 5, 2))
    one, three = matching.fixed_point(), matching.fixed_point(np.full(5, 3.0))
    np.testing.assert_allclose(three, 3.0 * one, rtol=1e-9)


def test_a_slow_chain_needs_few_fits_and_keeps_the_mean_of_its_start() -> None:
    # Two pairs of states that are left once in 10⁴ steps: plain iteration would need as many fits.
    slow = np.kron(np.eye(2), np.full((2, 2), 0.5)) * (1 - 1e-4) + 1e-4 / 4
    operator = CopOperator(MarkovChain(slow), np.array([0.1, 0.2, 0.3, 0.4])).discounted(1.0)
    phi = np.column_stack([np.ones(4), [0.0, 0.0, 1.0, 1.0], [0.0, 1.0, 0.0, 1.0]])
    matching = MatchingOperator(operator, phi)
    start = np.array([2.4, 2.5, 1.2, 1.3])
    fixed = matching.fixed_point(start, max_steps=50)
    np.testing.assert_allclose(matching.apply(fixed), fixed, rtol=1e-10)
    assert operator.d_mu @ fixed == pytest.approx(operator.d_mu @ start, rel=1e-9)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_an_unstable_fixed_point_is_passed_by(side: float) -> None:
    # c = 1 is a fixed point here by symmetry, and every start beside it leads away from it.
    fork, d_mu = np.eye(4)[[0, 0, 3, 3]], np.array([0.05, 0.45, 0.45, 0.05])
    operator = CopOperator(MarkovChain(fork), d_mu).discounted(0.9)
    line = np.column_stack([np.ones(4), [-3.0, -1.0, 1.0, 3.0]])
    matching = MatchingOperator(operator, line)
    np.testing.assert_allclose(matching.apply(np.ones(4)), 1.0)
    assert np.abs(np.linalg.eigvals(matching.on_weights(np.ones(4)))).max() > 1.5
    fixed = matching.fixed_point(np.exp(side * 1e-4 * line[:, 1]))
    assert fixed[0 if side < 0 else 3] > 10.0


@given(SEEDS, st.booleans())
def test_derivative_on_weights_by_central_differences(seed: int, floored: bool) -> None:
    rng = np.random.default_rng(seed)
    problem, phi, gamma, step = dirichlet(rng, 5, 2), features(rng, 5, 2), 0.9, 1e-5
    for link in (EXPONENTIAL, SAFE):
        matching = MatchingOperator(problem.cop.discounted(gamma), phi, link, floored)
        c = matching.fixed_point()
        x = (c - (1 - gamma)) / gamma if floored else c
        theta = fit_matching(x, phi, problem.d_mu, link)

        def refit(
            theta: np.ndarray, matching: MatchingOperator = matching, link: Link = link
        ) -> np.ndarray:
            ratio = link.ratio(phi @ theta)
            if floored:
                ratio = 1 - gamma + gamma * ratio
                target = problem.cop.apply(ratio)
            else:
                target = problem.cop.discounted(gamma).apply(ratio)
            return fit_matching(target, phi, problem.d_mu, link)

        columns = [
            (refit(theta + step * axis) - refit(theta - step * axis)) / (2 * step)
            for axis in np.eye(3)
        ]
        np.testing.assert_allclose(matching.on_weights(c), np.array(columns).T, atol=1e-4)


@given(SEEDS)
def test_sparse_chains_give_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem, phi = dirichlet(rng, 4, 2), features(rng, 4, 1)
    chains = problem.chain_pi, MarkovChain(sp.csr_array(problem.chain_pi.p))
    dense, sparse = (MatchingOperator(CopOperator(c, problem.d_mu, 0.9), phi) for c in chains)
    np.testing.assert_allclose(sparse.fixed_point(), dense.fixed_point(), rtol=1e-9)
    c = dense.fixed_point()
    np.testing.assert_allclose(sparse.on_weights(c), dense.on_weights(c), atol=1e-9)


def test_bad_input_names_the_value_and_the_cure() -> None:
    rng = np.random.default_rng(0)
    problem, walk = dirichlet(rng, 4, 2), episodic(rng, 4, 2)
    with pytest.raises(InputError, match=r"phi has no bias.*misses it by 0\.\d+; add a column"):
        MatchingOperator(problem.cop.discounted(0.9), rng.random((4, 2)))
    with pytest.raises(InputError, match=r"ratio_discount = 1: use .* below 1, or `restart\(\)`"):
        MatchingOperator(walk.cop.discounted(1.0), np.ones((4, 1)))
    restarted = MatchingOperator(walk.restart().cop.discounted(1.0), np.ones((4, 1)))
    np.testing.assert_allclose(restarted.fixed_point(), 1.0)
    with pytest.raises(InputError, match=r"target\[1\] = -0.5 is negative"):
        project_matching([1.0, -0.5], np.eye(2), [0.5, 0.5])
    with pytest.raises(InputError, match="every target is 0"):
        project_matching([0.0, 0.0], np.eye(2), [0.5, 0.5])
    with pytest.raises(InputError, match=r"averaging must lie in \(0, 1\], but it is 0"):
        MatchingOperator(problem.cop.discounted(0.9), np.ones((4, 1)), averaging=0.0)
    with pytest.raises(InputError, match=r"start must be positive everywhere, but start\[2\] = 0"):
        restarted.fixed_point([1.0, 1.0, 0.0, 1.0])


def test_fits_that_cycle_have_no_fixed_point_to_return() -> None:
    # Inner states lead to the far outer one, which the mean of the score overshoots each time.
    swap, d_mu = np.eye(4)[[3, 3, 0, 0]], np.array([0.05, 0.45, 0.45, 0.05])
    operator = CopOperator(MarkovChain(swap), d_mu).discounted(0.9)
    line = np.column_stack([np.ones(4), [-3.0, -1.0, 1.0, 3.0]])
    matching = MatchingOperator(operator, line)
    with pytest.raises(InputError, match=r"alternate between two ratios, .* \(averaging = 0.5\)"):
        matching.fixed_point([0.5, 0.9, 1.1, 1.5])
    with pytest.raises(InputError, match="not come to rest after 1 "):
        matching.fixed_point([0.5, 0.9, 1.1, 1.5], max_steps=1)
    c = np.array([0.5, 0.9, 1.1, 1.5])
    for _ in range(100):
        c = matching.apply(c)
    np.testing.assert_allclose(matching.apply(matching.apply(c)), c, rtol=1e-6)
    assert np.abs(matching.apply(c) - c).max() > 1.0
    # Averaged with the ratio before, they settle between the two, where the first iteration would stay if it started there.
    for floored in (False, True):
        damped = MatchingOperator(operator, line, floored=floored, averaging=0.5)
        rest = damped.fixed_point([0.5, 0.9, 1.1, 1.5])
        np.testing.assert_allclose(rest, damped.apply(rest), rtol=1e-8)
        np.testing.assert_allclose(
            rest, MatchingOperator(operator, line, floored=floored).apply(rest), rtol=1e-8
        )


@given(SEEDS, st.booleans(), st.floats(0.01, 1.0))
def test_averaged_targets_by_hand(seed: int, floored: bool, share: float) -> None:
    rng = np.random.default_rng(seed)
    problem, gamma = dirichlet(rng, 4, 2), 0.8
    c = 1.0 - gamma + gamma * rng.exponential(size=4)
    operator = problem.cop.discounted(gamma)
    matching = MatchingOperator(operator, np.eye(4), floored=floored, averaging=share)
    expected = (1 - share) * c + share * operator.apply(c)
    np.testing.assert_allclose(matching.apply(c), expected, rtol=1e-8)
    fixed = matching.fixed_point(c)
    np.testing.assert_allclose(fixed, problem.c_star(gamma), rtol=1e-6)
    np.testing.assert_allclose(
        matching.on_weights(fixed),
        (1 - share) * np.eye(4)
        + share * MatchingOperator(operator, np.eye(4), floored=floored).on_weights(fixed),
        atol=1e-6,
    )
