"""Markov chains: classes of states, stationary distributions, and the resolvent (I - βP)⁻¹."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from covshift.errors import InputError
from covshift.theory.multigrid import Multigrid
from covshift.validation import (
    TOLERANCE,
    Dense,
    Matrix,
    Vector,
    as_distribution,
    as_table,
    as_vector,
    check_discount,
    check_rows,
    name_states,
)

_SMALL, _DENSE = 300, 2000
"""States up to which elimination is always used, and up to which it is used where a factorization is too inexact."""

_LARGE = 200_000
"""States from which multigrid is tried first; with fewer, a sparse factorization is as fast."""

_MULTIGRID_CONDITION = 1e10
"""Largest condition number at which multigrid leaves enough digits of a stationary distribution."""


@final
@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A finite Markov chain P(s'|s), row s, dense or sparse.

    With a start distribution `d_0` the chain is episodic: a row may sum to less than 1, and the
    missing probability is that of the episode ending there.

    Args:
        p: states × states, `p[s, t]` the probability of t after s.
        d_0: start distribution of an episodic chain; None for a continuing one.
    """

    p: Matrix
    d_0: Vector | None = None
    _resolvents: dict[float, Resolvent] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not sp.issparse(self.p):
            object.__setattr__(self, "p", as_table("p", self.p, (-1, -1)))
        if self.p.ndim != 2 or self.p.shape[0] != self.p.shape[1]:
            raise InputError(f"p has shape {self.p.shape}, but a square matrix is needed")
        check_rows("p", self.p, substochastic=self.is_episodic)
        if self.d_0 is not None:
            object.__setattr__(self, "d_0", as_distribution("d_0", self.d_0, self.num_states))

    @property
    def num_states(self) -> int:
        """The number of states."""
        return int(self.p.shape[0])

    @property
    def is_episodic(self) -> bool:
        """Whether episodes start from `d_0` and end."""
        return self.d_0 is not None

    def push(self, x: Vector) -> Vector:
        """Pᵀx, the mass x after one more step."""
        return self.p.T @ x

    def recurrent_classes(self) -> list[NDArray[np.int64]]:
        """The closed classes of states, which the chain never leaves once it is in them."""
        graph = sp.csr_array(self.p, copy=True)
        graph.eliminate_zeros()
        count, label = connected_components(graph, directed=True, connection="strong")
        source = np.repeat(label, np.diff(graph.indptr))
        target = label[graph.indices]
        closed = np.ones(count, dtype=bool)
        closed[source[source != target]] = False
        if self.is_episodic:
            leak = np.asarray(graph.sum(axis=1)).ravel() < 1.0 - TOLERANCE
            closed[label[leak]] = False
        classes = [np.flatnonzero(label == k) for k in np.flatnonzero(closed)]
        return sorted(classes, key=lambda states: int(states[0]))

    def stationary(self) -> Vector:
        """The stationary distribution d = dP of a continuing chain with one recurrent class.

        Transient states get exactly 0.
        """
        if self.is_episodic:
            raise InputError("an episodic chain has visits, not a stationary distribution")
        classes = self.recurrent_classes()
        if len(classes) > 1:
            named = ", ".join(name_states(states) for states in classes[:4])
            raise InputError(
                f"the chain has {len(classes)} recurrent classes ({named}), so its stationary "
                "distribution is not unique; restrict it to one of them"
            )
        states = classes[0]
        distribution = np.zeros(self.num_states)
        distribution[states] = _stationary_of_class(self.p, states)
        return distribution

    def visits(self) -> Vector:
        """Expected visits in an episode: d = Σᵢ (Pᵀ)ⁱ d₀, which is not normalized."""
        if self.d_0 is None:
            raise InputError("only an episodic chain has visits; give it a start distribution d_0")
        return np.maximum(self.resolvent(1.0).solve_transposed(self.d_0), 0.0)

    def occupancy(self) -> Vector:
        """d of the paper: the stationary distribution, or for an episodic chain its visits."""
        return self.visits() if self.is_episodic else self.stationary()

    def restart(self) -> MarkovChain:
        """The continuing chain in which the end of an episode leads to the next one's start."""
        return self if self.d_0 is None else MarkovChain(lead_ends_to(self.p, self.d_0))

    def resolvent(self, discount: float) -> Resolvent:
        """(I - discount · P)⁻¹, factorized once and kept for the next call."""
        if discount not in self._resolvents:
            if discount == 1.0 and (trapped := self.recurrent_classes()):
                raise InputError(
                    f"episodes never end from the states {name_states(trapped[0])}: "
                    "give them a way to terminate, or use a discount below 1"
                )
            self._resolvents.clear()
            self._resolvents[discount] = Resolvent(self.p, discount)
        return self._resolvents[discount]

    def mixing_rate(self) -> float:
        """The second largest modulus of an eigenvalue of P: at 0 the chain mixes at once, at 1 never."""
        moduli = np.sort(np.abs(np.linalg.eigvals(as_dense(self.p))))
        return float(moduli[-2]) if len(moduli) > 1 else 0.0


@final
class Resolvent:
    """(I - βP)⁻¹ by one LU factorization or one multigrid hierarchy that serves P and Pᵀ.

    Sparse matrices are ordered by minimum degree on the pattern of A + Aᵀ and factorized without
    pivoting off the diagonal, which is safe for these diagonally dominant matrices. Large ones are solved by multigrid
    first (`Multigrid.solve` states the tolerance), and factorized only where it does not converge.
    """

    def __init__(self, p: Matrix, discount: float) -> None:
        check_discount("discount", discount)
        self._solve: Callable[[Vector, bool], Vector]
        if not sp.issparse(p):
            lu = scipy.linalg.lu_factor(np.eye(p.shape[0]) - discount * p)
            self._solve = lambda b, transposed: np.asarray(
                scipy.linalg.lu_solve(lu, b, trans=1 if transposed else 0)
            )
        elif p.shape[0] < _LARGE:
            self._solve = _factorize_sparse(_system(p, discount))
        else:
            self._solve = _solve_large(_system(p, discount))

    def solve(self, b: ArrayLike) -> Vector:
        """x with (I - βP) x = b."""
        return self._solve(np.asarray(b, dtype=np.float64), False)

    def solve_transposed(self, b: ArrayLike) -> Vector:
        """x with (I - βPᵀ) x = b."""
        return self._solve(np.asarray(b, dtype=np.float64), True)


def as_dense(matrix: Matrix) -> Dense:
    """The same matrix as a NumPy array."""
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def lead_ends_to(rows: Matrix, d_0: Vector) -> Matrix:
    """The rows with what is missing to a sum of 1 distributed as d_0."""
    ends = np.maximum(1.0 - np.asarray(rows.sum(axis=1)).ravel(), 0.0)
    if sp.issparse(rows):
        return sp.csr_array(rows + sp.csr_array(ends[:, None]) @ sp.csr_array(d_0[None, :]))
    return np.asarray(rows + np.outer(ends, d_0))


def total_variation(d: ArrayLike, other: ArrayLike) -> float:
    """½ Σ |d - other|, the largest difference in probability of any event."""
    first = np.asarray(d, dtype=np.float64)
    return float(0.5 * np.abs(first - as_vector("other", other, first.shape[0])).sum())


def _system(p: Matrix, discount: float) -> sp.csc_array:
    """I - discount · P."""
    return sp.csc_array(sp.eye_array(p.shape[0], format="csc") - discount * sp.csc_array(p))


def _solve_large(system: sp.csc_array) -> Callable[[Vector, bool], Vector]:
    """Solves by multigrid until it fails once, and by a factorization from then on."""
    multigrid: Multigrid | None = Multigrid(sp.csr_array(system))
    eliminate: Callable[[Vector, bool], Vector] | None = None

    def solve(b: Vector, transposed: bool) -> Vector:
        nonlocal multigrid, eliminate
        if multigrid is not None:
            x = multigrid.solve(b, transposed=transposed)
            if x is not None:
                return x
            multigrid = None
        if eliminate is None:
            eliminate = _factorize_sparse(system)
        return eliminate(b, transposed)

    return solve


def _factorize_sparse(system: sp.csc_array) -> Callable[[Vector, bool], Vector]:
    """Solves with the matrix, or with its transpose if the flag is set."""
    lu: Any = splu(
        system,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        panel_size=4,
        options={"SymmetricMode": True},
    )
    return lambda b, transposed: np.asarray(lu.solve(b, "T" if transposed else "N"))


def _stationary_of_class(p: Matrix, states: NDArray[np.int64]) -> Vector:
    """Solves d = dP on one irreducible class.

    Elimination is exact to rounding in every entry but takes cubic time on dense matrices. Large chains are solved by a
    factorization, as long as its condition number leaves enough digits.
    """
    block = p
    if len(states) < p.shape[0]:
        block = sp.csr_array(p)[states][:, states] if sp.issparse(p) else p[np.ix_(states, states)]
    if len(states) <= _SMALL:
        return _eliminate(as_dense(block))
    can_eliminate = len(states) <= _DENSE
    limit = 1e9 if can_eliminate else 1e14
    distribution, condition = _solve_anchored(block, 0)
    if not condition <= limit:
        # A state that is hardly ever visited is a bad anchor; take one that is visited often in the long run.
        late = Resolvent(block, 1.0 - 1e-9).solve_transposed(np.ones(len(states)))
        distribution, condition = _solve_anchored(block, int(np.argmax(late)))
    if condition <= limit:
        return distribution
    if can_eliminate:
        return _eliminate(as_dense(block))
    raise InputError(
        f"the stationary distribution of {len(states):,} states cannot be found in floating point: some parts of the "
        "chain are hardly ever left; use a discount below 1"
    )


def _eliminate(p: Dense) -> Vector:
    """The stationary distribution by the elimination of Grassmann, Taksar and Heyman (1985).

    States are taken out one by one, the last one first; what went through them becomes direct transitions. Nothing is
    ever subtracted, so every entry is right to rounding, however weakly parts of the chain are coupled. Blocks of
    states are taken out of the rest at once, by a product of matrices.
    """
    flow = np.array(p)
    for stop in range(len(flow), 1, -64):
        start = max(stop - 64, 1)
        for state in range(stop - 1, start - 1, -1):
            out = slice(state + 1, stop)
            flow[state, :state] += flow[state, out] @ flow[out, :state]
            flow[:state, state] += flow[:state, out] @ flow[out, state]
            flow[:state, state] /= flow[state, :state].sum()
        flow[:start, :start] += flow[:start, start:stop] @ flow[start:stop, :start]
    mass = np.ones(len(flow))
    for state in range(1, len(flow)):
        mass[state] = mass[:state] @ flow[:state, state]
        if mass[state] > 1e100:
            mass[: state + 1] /= mass[state]
    return np.asarray(mass / mass.sum())


def _solve_anchored(block: Matrix, anchor: int) -> tuple[Vector, float]:
    """The stationary distribution from the balance of all states but `anchor`, and the condition of that system.

    The condition is ‖(I - Pᵀ)⁻¹‖_∞ without the anchor; the inverse has no negative entry, so one solve tells its norm.
    """
    rest = np.delete(np.arange(block.shape[0]), anchor)
    try:
        if sp.issparse(block):
            rows = sp.csr_array(block)
            inflow = rows[[anchor]].toarray().ravel()[rest]
            system = _system(rows[rest][:, rest], 1.0)
            if len(rest) >= _LARGE:
                mass, condition = _balance_diffusive(system, inflow)
                if condition <= _MULTIGRID_CONDITION:
                    return _normalized(mass, anchor), condition
            solve = _factorize_sparse(system)
            mass, visits = solve(inflow, True), solve(np.ones(len(rest)), True)
        else:
            system_t = np.eye(len(rest)) - block[np.ix_(rest, rest)].T
            right = np.stack([block[anchor, rest], np.ones(len(rest))], axis=1)
            mass, visits = np.linalg.solve(system_t, right).T
    except (np.linalg.LinAlgError, RuntimeError):  # exactly singular
        return np.zeros(block.shape[0]), float("inf")
    # Rounding that makes an entry of the norm negative has lost every digit.
    condition = float(visits.max()) if visits.min() > 0.0 else float("inf")
    return _normalized(mass, anchor), condition


def _balance_diffusive(system: sp.csc_array, inflow: Vector) -> tuple[Vector, float]:
    """The mass by multigrid and a bound on the condition, which is infinite where multigrid does not apply.

    Only chains without much of a drift are tried. Under a drift a stationary distribution falls by hundreds of
    orders of magnitude, and elimination alone gets its small entries right.
    """
    multigrid = Multigrid(sp.csr_array(system))
    mass = multigrid.solve(inflow, transposed=True) if multigrid.is_diffusive else None
    return (inflow, float("inf")) if mass is None else (mass, multigrid.visits_bound())


def _normalized(mass: Vector, anchor: int) -> Vector:
    """The distribution with a mass of 1 at the anchor and these masses elsewhere."""
    distribution = np.insert(np.maximum(mass, 0.0), anchor, 1.0)
    return np.asarray(distribution / distribution.sum())
