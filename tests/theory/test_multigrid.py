from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from covshift.theory import MarkovChain, chain
from covshift.theory.examples import open_grid
from covshift.theory.multigrid import Multigrid, asymmetry
from covshift.validation import Dense, Matrix, Vector

SIDE = 40


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats the chains of these tests as large."""
    monkeypatch.setattr(chain, "_LARGE", 500)


@pytest.fixture
def no_elimination(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(system: sp.csc_array) -> None:
        raise AssertionError("a factorization was made")

    monkeypatch.setattr(chain, "_factorize_sparse", refuse)


def grid_chain(name: str) -> MarkovChain:
    """Policies from no drift to a strong one, with and without a pattern."""
    problem, rng = open_grid(SIDE), np.random.default_rng(3)
    uniform = problem.mu
    policies = {
        "uniform": uniform,
        "to the goal": problem.pi,
        "half to the goal": 0.5 * problem.pi + 0.5 * uniform,
        "random": rng.dirichlet(np.ones(4), len(uniform)),
        "random actions": 0.9 * np.eye(4)[rng.integers(0, 4, len(uniform))] + 0.1 * uniform,
    }
    return problem.mdp.chain(policies[name])


def dense_system(p: Matrix, discount: float) -> Dense:
    return np.eye(p.shape[0]) - discount * chain.as_dense(p)


EVERY = ["uniform", "to the goal", "half to the goal", "random", "random actions"]


@pytest.mark.usefixtures("no_elimination")
@pytest.mark.parametrize("name", EVERY)
def test_multigrid_equals_a_dense_solution(name: str) -> None:
    rng = np.random.default_rng(0)
    problem, discount = grid_chain(name), 0.99
    system = dense_system(problem.p, discount)
    rewards, source = rng.normal(size=len(system)), rng.random(len(system))
    values = np.linalg.solve(system, rewards)
    ours = problem.resolvent(discount).solve(rewards)
    np.testing.assert_allclose(ours, values, rtol=0, atol=1e-11 * np.abs(values).max())
    visits = np.linalg.solve(system.T, source)
    ours = problem.resolvent(discount).solve_transposed(source)
    np.testing.assert_allclose(ours, visits, rtol=1e-11)


@pytest.mark.usefixtures("no_elimination")
def test_a_diffusive_stationary_distribution_needs_no_factorization() -> None:
    problem = grid_chain("uniform")
    exact = chain._eliminate(chain.as_dense(problem.p))
    np.testing.assert_allclose(problem.stationary(), exact, rtol=1e-10)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("name", ["to the goal", "half to the goal"])
def test_small_entries_of_a_stationary_distribution_stay_right(name: str) -> None:
    problem = grid_chain(name)
    exact = chain._eliminate(chain.as_dense(problem.p))
    assert exact.min() < 1e-6 * exact.max()
    np.testing.assert_allclose(problem.stationary(), exact, rtol=1e-8)


@pytest.mark.usefixtures("large")
def test_a_factorization_takes_over_where_multigrid_stagnates() -> None:
    problem, discount = grid_chain("random"), 1.0 - 1e-9
    source = np.random.default_rng(0).random(problem.num_states)
    system = sp.csr_array(sp.eye_array(problem.num_states) - discount * problem.p)
    assert Multigrid(system).solve(source, transposed=True) is None
    ours = problem.resolvent(discount).solve_transposed(source)
    residual = np.abs(system.T @ ours - source)
    assert (residual <= 1e-14 * (abs(system).T @ ours + source)).all()


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("fault", ["wrong", "nothing", "not a number", "fails"])
def test_a_bad_hierarchy_costs_time_only(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = grid_chain("to the goal")
    rng = np.random.default_rng(0)
    b, system = rng.random(problem.num_states), dense_system(problem.p, 0.9)

    def cycle(hierarchy: object, smooths_first: bool, depth: int, residual: Vector) -> Vector:
        made = {"wrong": rng.normal(size=len(residual)), "nothing": np.zeros(len(residual))}
        return made.get(fault, np.full(len(residual), np.nan))

    def fail(*given: object) -> None:
        raise ValueError("array must not contain infs or NaNs")

    broken = ("_hierarchy", fail) if fault == "fails" else ("_cycle", cycle)
    monkeypatch.setattr(f"covshift.theory.multigrid.{broken[0]}", broken[1])
    ours = problem.resolvent(0.9).solve(b)
    np.testing.assert_allclose(ours, np.linalg.solve(system, b), rtol=1e-12)


def test_solutions_reach_the_stated_tolerance() -> None:
    p = grid_chain("half to the goal").p
    system = sp.csr_array(sp.eye_array(p.shape[0]) - 0.99 * p)
    b = np.random.default_rng(0).random((p.shape[0],))
    for transposed, matrix in ((False, system), (True, system.T)):
        x = Multigrid(system).solve(b, transposed=transposed)
        assert x is not None
        residual, most = np.abs(b - matrix @ x), abs(matrix) @ np.abs(x) + np.abs(b)
        assert (residual <= 1e-14 * (most if transposed else most.max())).all()


def test_a_source_of_zero_has_the_solution_zero() -> None:
    p = grid_chain("uniform").p
    system = sp.csr_array(sp.eye_array(p.shape[0]) - 0.9 * p)
    x = Multigrid(system).solve(np.zeros(p.shape[0]), transposed=False)
    np.testing.assert_array_equal(x, np.zeros(p.shape[0]))


def test_the_bound_on_visits_holds_and_is_tight() -> None:
    p: Any = sp.csr_array(grid_chain("uniform").p)[1:, 1:]
    system = sp.csr_array(sp.eye_array(p.shape[0]) - p)
    exact = np.linalg.solve(system.toarray().T, np.ones(p.shape[0])).max()
    assert exact <= Multigrid(system).visits_bound() <= 3.0 * exact


def test_asymmetry_of_known_matrices() -> None:
    assert asymmetry(sp.csr_array(np.array([[1.0, -0.5], [-0.5, 1.0]]))) == 0.0
    assert asymmetry(sp.csr_array(np.array([[1.0, -0.5], [0.0, 1.0]]))) == 1.0
    assert asymmetry(sp.csr_array(np.array([[1.0, -0.6], [-0.2, 1.0]]))) == pytest.approx(0.5)
