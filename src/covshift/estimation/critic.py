"""Fitted Q evaluation at its fixed point, on a table or on features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from covshift.estimation.estimand import Estimand
from covshift.estimation.experience import Experience
from covshift.estimation.model import EmpiricalModel
from covshift.estimation.moments import PairMoments, solve
from covshift.estimation.sample import Sample
from covshift.theory.chain import as_dense
from covshift.validation import Dense, Vector


@final
@dataclass(frozen=True, eq=False)
class Critic:
    """Q̂(s, a) = ψ(s, a)ᵀθ.

    Attributes:
        theta: weights of ψ, ordered by feature, then by action.
        gain: the average reward ĝ; 0 for a discounted value.
        value: the answer, which is E_{d₀}[V̂] or ĝ.
        restart_value: the value after an episode's end: 0, or E_{d₀}[V̂] under `restart`.
    """

    theta: Vector
    gain: float
    value: float
    restart_value: float = 0.0

    def values(self, experience: Experience, sample: Sample) -> tuple[Vector, Vector]:
        """Q̂(s, a) and V̂(s') of each transition."""
        q_tm1 = self._q(experience, sample.x_tm1)
        v_t = self.state_values(experience, sample.x_t, sample.pi_t)
        v_t = np.where(sample.terminated_t, self.restart_value, v_t)
        return q_tm1[np.arange(len(q_tm1)), sample.a_tm1], v_t

    def state_values(self, experience: Experience, x: NDArray[Any], pi: Dense) -> Vector:
        """V̂(s) = Σ_b π(b|s) Q̂(s, b)."""
        return np.asarray((pi * self._q(experience, x)).sum(axis=1))

    def _q(self, experience: Experience, x: NDArray[Any]) -> Dense:
        theta = self.theta.reshape(-1, experience.num_actions)
        return np.asarray(theta[x] if experience.is_tabular else x @ theta)


def fit_critic(experience: Experience, estimand: Estimand) -> Critic:
    """Fits Q̂ so that Q̂(s, a) = r + γ Σ_b π(b|s') Q̂(s', b) on average over the data, as far as features allow.

    On a table this is the value of the empirical model. On features it is LSTDQ, the fixed point of fitted
    Q iteration with least squares: Σ ψ (ψ - γψ̄')ᵀ θ = Σ ψ r. For the average reward γ = 1, Q̂ is the differential
    value, and ĝ is a further unknown: Σ ψ [(ψ - ψ̄')ᵀθ + ĝ] = Σ ψ r.
    """
    asked = estimand.objective, estimand.discount, estimand.ridge
    return experience.once((Critic, *asked), lambda: _fit(experience, estimand))


def _fit(experience: Experience, estimand: Estimand) -> Critic:
    if experience.is_tabular:
        return _fit_table(experience, estimand)
    moments = PairMoments.of(experience)
    size = len(moments.total)
    if not estimand.is_average:
        system = as_dense(moments.gram - estimand.discount * moments.cross) / moments.count
        theta = solve(system, moments.reward / moments.count, estimand.ridge)
        return Critic(theta, 0.0, float(moments.initial @ theta / moments.starts))
    episodic = experience.logs.has_episodes
    moments = moments.restarted() if episodic else moments
    system = as_dense(moments.gram - moments.cross) / moments.count
    # Q̂ is determined up to a constant, so the ridge picks a small θ; it spares the last entry, which is ĝ.
    bordered = np.column_stack([system, moments.total / moments.count])
    inner = bordered.T @ bordered + estimand.ridge * np.diag(np.append(np.ones(size), 0.0))
    found = solve(inner, bordered.T @ (moments.reward / moments.count))
    theta, gain = np.asarray(found[:-1], dtype=np.float64), float(found[-1])
    back = float(moments.initial @ theta / moments.starts) if episodic else 0.0
    return Critic(theta, gain, gain, back)


def _fit_table(experience: Experience, estimand: Estimand) -> Critic:
    model = EmpiricalModel.of(experience)
    if not estimand.is_average:
        v = model.value(estimand.discount)
        q = model.q_values(v, estimand.discount)
        return Critic(_spread(experience, model, q, v), 0.0, float(model.d_0 @ v))
    semantics = estimand.semantics(experience)
    chain = model.chain(semantics)
    d_pi = model.ratio(semantics, 1.0) * model.d_mu
    gain = float(d_pi @ model.r_pi)
    # (I - P̂_π) v = r̂_π - ĝ with d_π·v = 0: adding e d_πᵀ makes the matrix regular.
    settling = model.settling_discount(chain)
    inflow = d_pi - (1.0 - settling) * model.d_mu
    matrix = np.eye(len(d_pi)) - settling * as_dense(chain.p) + np.outer(np.ones(len(d_pi)), inflow)
    v = np.asarray(np.linalg.solve(matrix, model.r_pi - gain), dtype=np.float64)
    back = float(model.d_0 @ v) if semantics == "restart" else 0.0
    q = model.q_values(v, 1.0) - gain + model.end_share() * back
    return Critic(_spread(experience, model, q, v), gain, gain, back)


def _spread(experience: Experience, model: EmpiricalModel, q: Any, v: Vector) -> Vector:
    """θ of a table: Q̂ where the pair was seen, V̂ where only the state was, the mean V̂ elsewhere."""
    filled = np.where(model.pairs > 0, q, v[:, None])
    return model.scatter(filled, experience.features.size, float(model.d_mu @ v)).ravel()
