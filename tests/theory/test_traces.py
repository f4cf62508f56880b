import numpy as np
import pytest

from covshift.errors import InputError
from covshift.theory import RetraceOperator, induced_norm, worst_feature_radius
from covshift.theory.examples import Problem, dirichlet


@pytest.fixture
def problem() -> Problem:
    return dirichlet(np.random.default_rng(5), 4, 3)


def test_the_operator_is_the_sum_of_corrected_errors_along_paths(problem: Problem) -> None:
    """Q(s, a) + Σ_t γᵗ E_μ[c_1 … c_t δ_t], one step after the other."""
    operator = RetraceOperator(problem.mdp, problem.pi, problem.mu, 0.9, 0.8)
    q = np.random.default_rng(1).normal(size=12)
    kernel, table = problem.mdp.dense_kernel(), q.reshape(4, 3)
    delta = problem.mdp.r + 0.9 * kernel @ (problem.pi * table).sum(axis=1) - table
    total, ahead, factor = table.copy(), delta, 1.0
    for _ in range(400):
        total = total + factor * ahead
        # E[c δ] at the next pair, given this one: the trace passes λ min(1, ρ) on.
        traces = 0.8 * np.minimum(1.0, problem.rho)
        ahead = kernel @ (problem.mu * traces * ahead).sum(axis=1)
        factor *= 0.9
    np.testing.assert_allclose(operator.apply(q).reshape(4, 3), total, atol=1e-10)


def test_without_decay_it_is_one_step_and_on_policy_it_is_td_lambda(problem: Problem) -> None:
    one = RetraceOperator(problem.mdp, problem.pi, problem.mu, 0.9, 0.0)
    steps = one.as_matrix() / 0.9
    np.testing.assert_allclose(steps.sum(axis=1), 1.0)
    same = RetraceOperator(problem.mdp, problem.pi, problem.pi, 0.9, 0.7)
    expected = np.linalg.solve(np.eye(12) - 0.63 * steps, 0.9 * 0.3 * steps)
    np.testing.assert_allclose(same.as_matrix(), expected, atol=1e-12)
    assert same.sup_modulus == pytest.approx(0.9 * 0.3 / (1 - 0.63))


def test_the_worst_feature_has_the_largest_radius(problem: Problem) -> None:
    operator = RetraceOperator(problem.mdp, problem.pi, problem.mu, 0.9)
    a, d = operator.as_matrix(), (problem.d_mu[:, None] * problem.mu).ravel()
    worst = worst_feature_radius(a, d)
    rng = np.random.default_rng(0)
    tried = [abs(x @ (d * (a @ x))) / (x @ (d * x)) for x in rng.normal(size=(2000, 12))]
    assert max(tried) <= worst <= induced_norm(a, d)
    root = np.sqrt(d)
    scaled = a * root[:, None] / root[None, :]
    values, vectors = np.linalg.eigh((scaled + scaled.T) / 2)
    x = vectors[:, np.abs(values).argmax()] / root
    assert abs(x @ (d * (a @ x))) / (x @ (d * x)) == pytest.approx(worst)


def test_decays_beyond_one_are_refused(problem: Problem) -> None:
    with pytest.raises(InputError, match=r"decay must lie in \[0, 1\], but it is 1.5"):
        RetraceOperator(problem.mdp, problem.pi, problem.mu, 0.9, 1.5)
