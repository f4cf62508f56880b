import numpy as np
import pytest

from covshift.errors import InputError
from covshift.theory import (
    FiniteMDP,
    MarkovChain,
    approximation_error,
    concentration,
    concentration_limit,
    dual_modulus,
    dual_weighting,
    emphatic_modulus,
    expected_trace,
    mean_ratio_bounds,
    printed_concentration_bound,
    reset_margin,
    safe_ratio_discount,
)
from covshift.theory.examples import Problem, bairds_star, dirichlet, kolter_chain, random_walk


def test_concentration_by_hand() -> None:
    # All mass of d_μ = (¼, ¾) goes to the first state: K = 1/¼ for every n.
    chain = MarkovChain(np.array([[1.0, 0.0], [1.0, 0.0]]))
    assert concentration(chain, [0.25, 0.75]) == pytest.approx(4.0)
    assert concentration(chain, [0.25, 0.75], 5) == pytest.approx(4.0)
    assert concentration_limit(chain, [0.25, 0.75]) == pytest.approx(4.0)
    assert printed_concentration_bound(chain.stationary(), [0.25, 0.75]) == np.inf
    # One step from a swap: d_μ P = (¾, ¼), so K = max(3, ⅓); two steps lead back.
    swap = MarkovChain(np.array([[0.0, 1.0], [1.0, 0.0]]))
    assert concentration(swap, [0.25, 0.75]) == pytest.approx(3.0)
    assert concentration(swap, [0.25, 0.75], 2) == pytest.approx(1.0)
    assert printed_concentration_bound([0.5, 0.5], [0.25, 0.75]) == pytest.approx(2.0 * 1.5)


def test_safe_discount_by_hand() -> None:
    assert safe_ratio_discount(4.0) == pytest.approx(0.5)
    assert safe_ratio_discount(4.0, 2) == pytest.approx(np.sqrt(0.5))
    assert safe_ratio_discount(1.0, 7) == 1.0
    with pytest.raises(InputError, match=r"at least 1, but it is 0\.5"):
        safe_ratio_discount(0.5)
    with pytest.raises(InputError, match="num_steps must be at least 1, but it is 0"):
        safe_ratio_discount(4.0, 0)


def test_moduli_by_hand() -> None:
    c = np.array([0.5, 2.0])
    assert reset_margin(c, 0.9) == pytest.approx(0.05)
    assert dual_modulus(c, 0.9) == pytest.approx(np.sqrt(0.9 * 0.95))
    assert emphatic_modulus(c, 0.9, 0.99) == pytest.approx(0.99 * np.sqrt(0.95 / 0.9))
    np.testing.assert_allclose(dual_weighting(c, [0.4, 0.6]), [0.8, 0.3])
    with pytest.raises(InputError, match=r"c must be positive everywhere, but c\[0\] = 0"):
        dual_weighting([0.0, 1.0], [0.5, 0.5])


def test_trace_of_bairds_star_by_hand() -> None:
    # F = 1 + γ̂ρF: expected 1 at the first six states and 1 + 7γ̂E[F] at the seventh, with mean m:
    # m = 1 + γ̂m, so m = 1/(1 - γ̂) and the seventh has 1 + 7γ̂/(1 - γ̂).
    star = bairds_star()
    trace = expected_trace(star.chain_pi, star.d_mu, 0.9)
    np.testing.assert_allclose(trace, [1.0] * 6 + [1.0 + 7 * 0.9 / 0.1])
    walk = random_walk()
    with pytest.raises(InputError, match="on continuing chains"):
        expected_trace(walk.chain_pi, walk.d_mu, 0.9)
    with pytest.raises(InputError, match=r"must lie in \[0, 1\)"):
        expected_trace(star.chain_pi, star.d_mu, 1.0)


def test_theorem_1_on_kolters_chain_by_hand() -> None:
    # One feature φ under d = (m, 1 - m): Π_d = φ uᵀ with u = (m, (1 - m)φ₂)/(m + (1 - m)φ₂²). With
    # d_π = (½, ½) norms of matrices are plain ones: ‖Π_d‖ = ‖φ‖‖u‖, and P_π = ½ eeᵀ gives
    # ‖Π_d P_π‖ = ‖φ‖ |u₁ + u₂| / √2. For other d_π the norms are weighted, so m, γ = 0.5 below.
    problem = kolter_chain(mass_on_first=0.6, epsilon=0.2, discount=0.5)
    phi, m = np.array([1.0, 1.25]), 0.6
    u = np.array([m, (1 - m) * phi[1]]) / (m + (1 - m) * phi[1] ** 2)
    value = np.array([1.0, 1.05])
    distance = np.linalg.norm(phi * (u @ value) - value) / np.sqrt(2)
    theta = (u @ problem.mdp.r[:, 0]) / (1 - 0.5 * u.sum() * phi.mean())
    found = approximation_error(problem.bellman, problem.phi, problem.d_mu, problem.d_pi)
    norm = np.linalg.norm(phi)
    assert found.error == pytest.approx(np.linalg.norm(phi * theta - value) / np.sqrt(2))
    assert found.bound == pytest.approx(distance / (1 - 0.5 * norm * u.sum() / np.sqrt(2)))
    assert found.looser_bound == pytest.approx(distance / (1 - 0.5 * norm * np.linalg.norm(u)))
    assert found.error < found.bound < found.looser_bound


def test_theorem_1_with_everything_in_the_span() -> None:
    problem = dirichlet(np.random.default_rng(0), 4, 2)
    found = approximation_error(problem.bellman, np.eye(4), problem.d_mu, problem.d_pi)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.looser_bound == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("stays", "end"), [(1.0, 1), (0.0, 0)])
def test_the_bounds_of_the_mean_are_reached(stays: float, end: int) -> None:
    """One state, in which μ ends half of the time, so that p₀ = 1/2.

    A policy that never ends reaches the upper bound and one that ends at once the lower one. At γ̂ = 0.9 the lower
    bound is 0.1 + 0.45 = 0.55 and the upper one 0.55/0.1.
    """
    mdp = FiniteMDP(np.array([[[1.0], [0.0]]]), np.zeros((1, 2)), np.ones(1))
    problem = Problem(mdp, np.array([[stays, 1.0 - stays]]), np.array([[0.5, 0.5]]))
    bounds = mean_ratio_bounds(0.9, 0.5)
    assert bounds == pytest.approx((0.55, 5.5))
    assert problem.c_star(0.9) == pytest.approx(bounds[end])


def test_discounted_visits_have_a_bound_without_a_ratio_discount() -> None:
    """A policy that never ends makes Σ γⁱ = 1/(1 - γ) discounted visits: the bound is p₀/(1 - γ) = 0.1/(1 - 0.8)."""
    assert mean_ratio_bounds(1.0, 0.1, 0.8) == pytest.approx((0.1, 0.5))
    assert mean_ratio_bounds(1.0, 0.1) == (0.1, float("inf"))
