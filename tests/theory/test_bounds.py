import numpy as np
import pytest

from covshift.errors import InputError
from covshift.theory import (
    MarkovChain,
    approximation_error,
    concentration,
    concentration_limit,
    dual_modulus,
    dual_weighting,
    emphatic_modulus,
    expected_trace,
    printed_concentration_bound,
    reset_margin,
    safe_ratio_discount,
)
from covshift.theory.examples import bairds_star, dirichlet, tsitsiklis_van_roy


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


def test_theorem_1_on_the_two_state_chain() -> None:
    # V^π = 0 is in the span, so every bound that says something is 0, and so is the error.
    problem = tsitsiklis_van_roy(0.5)
    found = approximation_error(problem.bellman, problem.phi, problem.d_mu, np.array([1e-9, 1.0]))
    assert found.error == pytest.approx(0.0)
    assert found.bound in (0.0, np.inf)


def test_theorem_1_with_everything_in_the_span() -> None:
    problem = dirichlet(np.random.default_rng(0), 4, 2)
    found = approximation_error(problem.bellman, np.eye(4), problem.d_mu, problem.d_pi)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.looser_bound == pytest.approx(0.0, abs=1e-9)
