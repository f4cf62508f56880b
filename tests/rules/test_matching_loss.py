import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given
from hypothesis import strategies as st

from covshift.errors import InputError
from covshift.rules import (
    EXPONENTIAL,
    LINKS,
    SAFE,
    Link,
    arrival_target,
    clipped_policy,
    floored_ratio,
    importance_ratio,
    mass_closure,
    matching_gradient,
    matching_loss,
    n_step_cop_target,
)
from covshift.theory.examples import episodic

SEEDS = st.integers(0, 2**32 - 1)
Z = np.array([-3.0, -0.5, 0.0, 0.5, 3.0])
EACH_LINK = pytest.mark.parametrize("link", LINKS.values(), ids=LINKS)


def test_links_by_hand() -> None:
    e = np.exp([-3.0, -0.5, 0.0, 0.5, 3.0])
    np.testing.assert_allclose(EXPONENTIAL.ratio(Z), e)
    np.testing.assert_allclose(EXPONENTIAL.integral(Z), e)
    np.testing.assert_allclose(EXPONENTIAL.slope(Z), e)
    # 1 + z and 1 + z + z²/2 from 0 on.
    np.testing.assert_allclose(SAFE.ratio(Z), [e[0], e[1], 1.0, 1.5, 4.0])
    np.testing.assert_allclose(SAFE.integral(Z), [e[0], e[1], 1.0, 1.625, 8.5])
    np.testing.assert_allclose(SAFE.slope(Z), [e[0], e[1], 1.0, 1.0, 1.0])


@EACH_LINK
def test_links_are_positive_and_increase(link: Link) -> None:
    ratios = link.ratio(np.linspace(-30.0, 30.0, 2001))
    assert ratios.min() > 0
    assert np.diff(ratios).min() > 0
    assert link.ratio(np.zeros(1)) == 1.0


@EACH_LINK
@given(low=st.floats(-8.0, 3.0), length=st.floats(0.0, 3.0))
def test_integral_of_a_link_by_quadrature(link: Link, low: float, length: float) -> None:
    ends = np.array([low, low + length])

    def ratio(z: float) -> float:
        return float(link.ratio(np.array([z]))[0])

    area = scipy.integrate.quad(ratio, low, low + length, points=[0.0], epsabs=1e-11)[0]
    assert np.diff(link.integral(ends))[0] == pytest.approx(area, abs=1e-8)


@EACH_LINK
@given(seed=SEEDS)
def test_gradient_and_curvature_by_central_differences(link: Link, seed: int) -> None:
    rng = np.random.default_rng(seed)
    z, target, step = rng.normal(0.0, 2.0, 5), rng.exponential(3.0, 5), 1e-6
    slope = matching_loss(z + step, target, link) - matching_loss(z - step, target, link)
    np.testing.assert_allclose(matching_gradient(z, target, link), slope / (2 * step), atol=1e-6)
    curve = matching_gradient(z + step, target, link) - matching_gradient(z - step, target, link)
    np.testing.assert_allclose(link.slope(z), curve / (2 * step), atol=1e-5)


def test_matching_loss_by_hand() -> None:
    z, target = np.array([0.0, 1.0]), np.array([5.0, 2.0])
    # e⁰ - 5·0 and e¹ - 2·1; the safe link has 1 + 1 + ½ in place of e.
    np.testing.assert_allclose(matching_loss(z, target, EXPONENTIAL), [1.0, np.e - 2.0])
    np.testing.assert_allclose(matching_loss(z, target, SAFE), [1.0, 0.5])
    np.testing.assert_allclose(matching_gradient(z, target, EXPONENTIAL), [-4.0, np.e - 2.0])


@EACH_LINK
def test_autograd_of_the_loss_is_the_gradient_also_at_zero_and_far_out(link: Link) -> None:
    highest = 700.0 if link is EXPONENTIAL else 1e6
    z = torch.tensor([-800.0, -3.0, -1e-9, 0.0, 1e-9, 3.0, highest], dtype=torch.float64)
    z.requires_grad_()
    target = torch.tensor([2.0, 0.0, 1.0, 4.0, 1.0, 2.0, 1.0], dtype=torch.float64)
    matching_loss(z, target, link).sum().backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    torch.testing.assert_close(z.grad, matching_gradient(z, target, link).detach())
    # The ratio underflows to 0 and the gradient is still -T, so that learning can lift it again.
    assert z.grad[0] == -2.0


@EACH_LINK
def test_torch_and_numpy_agree(link: Link) -> None:
    target = np.array([0.1, 2.0, 1.0, 0.0, 5.0])
    pairs = [
        (link.ratio(torch.tensor(Z)), link.ratio(Z)),
        (link.slope(torch.tensor(Z)), link.slope(Z)),
        (
            matching_loss(torch.tensor(Z), torch.tensor(target), link),
            matching_loss(Z, target, link),
        ),
    ]
    for tensor, array in pairs:
        torch.testing.assert_close(tensor, torch.tensor(array))
    assert link.ratio(torch.tensor([0.5])).dtype == torch.float32


def test_an_exponential_that_overflows_names_the_score_and_the_cure() -> None:
    with pytest.raises(InputError, match=r"overflows at z = 812.*709.*use the safe link"):
        EXPONENTIAL.ratio(np.array([0.0, 812.0]))
    with pytest.raises(InputError, match=r"overflows at z = 89 .*88\.72"):
        matching_loss(torch.tensor([89.0]), torch.tensor([1.0]), EXPONENTIAL)
    assert np.isfinite(EXPONENTIAL.ratio(np.array([709.0])))
    assert SAFE.ratio(np.array([812.0])) == 813.0


@given(SEEDS, st.integers(1, 4), st.floats(0.0, 1.0))
def test_floored_arrival_targets_are_the_targets_of_the_ratio(
    seed: int, n: int, gamma: float
) -> None:
    rng = np.random.default_rng(seed)
    c, rhos = rng.random(6) * 3, [rng.random(6) * 3 for _ in range(n)]
    initial = [rng.random(6) < 0.3 for _ in range(n)]
    for starts in (None, initial):
        arrivals = arrival_target(c, rhos, gamma, starts)
        expected = n_step_cop_target(c, rhos, gamma, starts)
        np.testing.assert_allclose(floored_ratio(arrivals, gamma), expected)


def test_arrival_targets_by_hand() -> None:
    c, rho = np.array([3.0, 3.0]), np.array([0.5, 0.5])
    starts = np.array([False, True])
    np.testing.assert_allclose(arrival_target(c, [rho], 0.9, [starts]), [1.5, 1.0])
    # Two steps: ρ₂ (γ̂ ρ₁ c + 1 - γ̂) = 2 (0.9 · 1.5 + 0.1) = 2.9; after a start ρ₂ · 1 = 2.
    window = [rho, np.array([2.0, 2.0])]
    never = np.array([False, False])
    np.testing.assert_allclose(arrival_target(c, window, 0.9, [starts, never]), [2.9, 2.0])
    assert arrival_target(np.zeros(1), [np.ones(1)], 0.3)[0] == 0.0
    np.testing.assert_allclose(floored_ratio(np.array([0.0, 2.0]), 0.9), [0.1, 1.9])


@given(SEEDS, st.booleans(), st.floats(0.05, 0.99))
def test_mass_closure_undoes_a_scale_and_balances_any_shape(
    seed: int, restart: bool, gamma: float
) -> None:
    rng = np.random.default_rng(seed)
    problem = episodic(rng, single_start=False)
    share = 0.0 if restart else 1.0 / float(problem.d_mu.sum())
    problem = problem.restart() if restart else problem
    stream = problem.d_mu / problem.d_mu.sum()
    ends = 1.0 - np.asarray(problem.chain_pi.p).sum(axis=1)
    exact = problem.c_star(gamma)

    def closure(c: np.ndarray) -> float:
        return float(mass_closure(stream @ c, stream @ (ends * c), share, gamma))

    assert closure(7.0 * exact) == pytest.approx(1 / 7)
    shape = rng.exponential(2.0, len(exact))
    closed = closure(shape) * shape
    entering = 1 - gamma + gamma * share
    staying = float(stream @ (closed * (1 - ends)))
    assert stream @ closed == pytest.approx(entering + gamma * staying)


def test_mass_closure_by_hand() -> None:
    # (0.1 + 0.9 · 0.2) / (0.1 · 3 + 0.9 · 0.5) = 0.28/0.75.
    mean_ratio, mean_ended = np.array(3.0), np.array(0.5)
    assert mass_closure(mean_ratio, mean_ended, 0.2, 0.9) == pytest.approx(0.28 / 0.75)
    assert mass_closure(mean_ratio, mean_ended, 0.2, 1.0) == pytest.approx(0.4)


@given(SEEDS, st.floats(0.1, 5.0))
def test_a_clip_that_keeps_mass_is_the_ratio_of_a_policy(seed: int, k: float) -> None:
    rng = np.random.default_rng(seed)
    pi, mu = rng.dirichlet(np.ones(4), 5), rng.dirichlet(np.ones(4), 5)
    policy = clipped_policy(pi, mu, k)
    ratio = importance_ratio(policy, mu)
    np.testing.assert_allclose((mu * ratio).sum(axis=1), 1.0)
    for s in range(5):
        total = sum(min(pi[s, a], k * mu[s, a]) for a in range(4))
        for a in range(4):
            assert ratio[s, a] == pytest.approx(min(pi[s, a] / mu[s, a], k) / total)
    # The plain clip keeps the whole mass only where it clips nothing.
    plain = (mu * np.minimum(pi / mu, k)).sum(axis=1)
    clips = (pi > k * mu).any(axis=1)
    assert (plain[clips] < 1.0).all()
    np.testing.assert_allclose(policy[~clips], pi[~clips])
    torch.testing.assert_close(
        clipped_policy(torch.tensor(pi), torch.tensor(mu), k), torch.tensor(policy)
    )


def test_clipped_policy_by_hand_and_bad_input() -> None:
    pi, mu = np.array([0.9, 0.1]), np.array([0.3, 0.7])
    # min(0.9, 0.3) = 0.3 and min(0.1, 0.7) = 0.1, over their sum.
    np.testing.assert_allclose(clipped_policy(pi, mu, 1.0), [0.75, 0.25])
    # μ never takes the first action, and neither does π_k.
    np.testing.assert_allclose(clipped_policy(pi, np.array([0.0, 1.0]), 2.0), [0.0, 1.0])
    with pytest.raises(InputError, match="rho_clip must be positive, but it is 0"):
        clipped_policy(pi, mu, 0.0)
    with pytest.raises(InputError, match="pi takes no action that mu takes"):
        clipped_policy(np.array([1.0, 0.0]), np.array([0.0, 1.0]), 2.0)
