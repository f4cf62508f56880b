"""Data of several behavior policies, as an agent's own past (B9): each row with its own μ, or with that of the mixture."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covshift.experiments.theory.claims import cases
from covshift.experiments.theory.claims.cases import Case, any_start, continuing, relative
from covshift.experiments.theory.claims.chapter import Chapter
from covshift.rules import discounted_cop_target
from covshift.theory import CopOperator, c_star
from covshift.validation import Dense, Vector

CHAPTER = Chapter()
CLAIMS, theorem, refuted = CHAPTER.claims, CHAPTER.theorem, CHAPTER.refuted
SEVERAL = ", data of 2 to 4 policies in random shares"
RANDOM, EPISODIC = cases.RANDOM + SEVERAL, cases.ANY_START + SEVERAL
UNCOVERED = RANDOM + ", of which one never takes an action that π takes"


@dataclass(frozen=True)
class Mixture:
    """A case, and data of several policies.

    Attributes:
        mus: policies × states × actions.
        d_each: policies × states, how often each visits a state, times its share of the data; visits per start if there
            are episodes.
    """

    case: Case
    mus: Dense
    d_each: Dense

    @property
    def d_mu(self) -> Vector:
        """How often the data visit a state."""
        return np.asarray(self.d_each.sum(axis=0))

    @property
    def mu_bar(self) -> Dense:
        """μ̄(a|s), how often the data take an action in a state."""
        taken = np.einsum("ks,ksa->sa", self.d_each, self.mus)
        return np.asarray(taken / self.d_mu[:, None])

    def mean_target(self, c: Vector, denominators: Dense) -> Vector:
        """The mean over the data of the target of c(s'), by the rule, when row k's ρ has `denominators[k]`."""
        problem, gamma = self.case.problem, self.case.ratio_discount
        kernel, total = problem.mdp.dense_kernel(), np.zeros(len(c))
        for d, mu, denominator in zip(self.d_each, self.mus, denominators, strict=True):
            rho = np.divide(problem.pi, denominator, out=np.zeros_like(mu), where=mu > 0)
            target = discounted_cop_target(c[:, None], rho, gamma)
            total += np.einsum("s,sa,sat,sa->t", d, mu, kernel, target)
        if problem.mdp.d_0 is not None:  # An initial state has the target 1.
            total += problem.mdp.d_0
        return np.asarray(total / self.d_mu)

    def error(self, denominators: Dense) -> float:
        """How far the mean target is from Y_γ̂ over the mixture, at a random c and at its fixed point d̂_π/d_μ."""
        chain, gamma, worst = self.case.problem.chain_pi, self.case.ratio_discount, 0.0
        operator = CopOperator(chain, self.d_mu, gamma)
        exact = c_star(chain, self.d_mu, gamma)
        for c in (self.case.vector(), exact):
            found = self.mean_target(c, denominators)
            worst = max(worst, relative(found - operator.apply(c), c))
        return max(worst, relative(self.mean_target(exact, denominators) - exact, exact))

    def second_moments(self, denominators: Dense) -> Vector:
        """E[ρ²|s] over the data."""
        weights = self.d_each / self.d_mu
        rho = self.case.problem.pi / denominators
        return np.asarray(np.einsum("ks,ksa->s", weights, self.mus * rho**2))


def _mixed(case: Case) -> Mixture:
    """2 to 4 random policies; each restarts as often as its share of the episodes."""
    count, problem, rng = int(case.rng.integers(2, 5)), case.problem, case.rng
    shares = rng.dirichlet(np.ones(count))
    mus = rng.dirichlet(np.ones(problem.mdp.num_actions), size=(count, problem.mdp.num_states))
    mus = 0.9 * mus + 0.1 / problem.mdp.num_actions
    each = [
        share * problem.mdp.chain(mu).occupancy() for share, mu in zip(shares, mus, strict=True)
    ]
    return Mixture(case, mus, np.array(each))


def _several(rng: np.random.Generator) -> Mixture:
    return _mixed(continuing(rng))


def _several_episodic(rng: np.random.Generator) -> Mixture:
    return _mixed(any_start(rng))


def _uncovered(rng: np.random.Generator) -> Mixture:
    """As `_several`, but the first policy never takes the first action in the first state."""
    mixture = _several(rng)
    mus = mixture.mus.copy()
    mus[0, 0, 0] = 0.0
    mus[0, 0] /= mus[0, 0].sum()
    d_each, mdp = mixture.d_each.copy(), mixture.case.problem.mdp
    d_each[0] = d_each[0].sum() * mdp.chain(mus[0]).occupancy()
    return Mixture(mixture.case, mus, d_each)


def _balanced(mixture: Mixture) -> Dense:
    return np.broadcast_to(mixture.mu_bar, mixture.mus.shape)


@theorem("B9-own-mu", RANDOM, _several, broken_by="B9-uncovered")
def _own(mixture: Mixture) -> float:
    """With each row's own μ(a|s) in ρ, COP-TD on data of several policies averages to Y_γ̂ over their mixture, and finds d̂_π over it, if every policy takes what π takes."""
    return mixture.error(mixture.mus)


@theorem("B9-own-mu-episodic", EPISODIC, _several_episodic)
def _own_episodic(mixture: Mixture) -> float:
    """The same counting visits of episodes, where a policy's share is its share of the episodes."""
    return mixture.error(mixture.mus)


@refuted("B9-uncovered", UNCOVERED, _uncovered)
def _own_uncovered(mixture: Mixture) -> float:
    """It is enough for each row's own μ that one of the policies takes what π takes."""
    return mixture.error(mixture.mus)


@theorem("B9-balanced", UNCOVERED, _uncovered, broken_by="B9-newest")
def _balanced_mean(mixture: Mixture) -> float:
    """With the balanced denominator μ̄(a|s) in every ρ it is enough, and the mean target is the same."""
    return mixture.error(_balanced(mixture))


@theorem("B9-balanced-variance", RANDOM, _several)
def _balanced_variance(mixture: Mixture) -> float:
    """The balanced denominator never makes E[ρ²|s] larger than each row's own."""
    own, balanced = (mixture.second_moments(x) for x in (mixture.mus, _balanced(mixture)))
    return float((balanced - own).max())


@refuted("B9-newest", RANDOM, _several)
def _newest(mixture: Mixture) -> float:
    """The newest policy's μ(a|s) will do for all rows of the replay."""
    return mixture.error(np.broadcast_to(mixture.mus[-1], mixture.mus.shape))
