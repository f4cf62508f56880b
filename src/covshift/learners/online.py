"""The loop that feeds a learner with a stream of transitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from covshift.errors import InputError
from covshift.theory.simulation import Transition
from covshift.validation import check_count

StateT = TypeVar("StateT")
Observed = TypeVar("Observed")


class Learner(Protocol[StateT]):
    """What `train` asks of a learner."""

    def init(self, num_seeds: int) -> StateT:
        """The state before any data."""

    def update(self, state: StateT, block: Transition) -> None:
        """Updates the state in place with a block of transitions, steps × seeds, one step after the other."""


def train(
    learner: Learner[StateT],
    state: StateT,
    blocks: Iterable[Transition],
    *,
    observe: Callable[[StateT], Observed],
    every: int,
) -> list[Observed]:
    """Feeds transitions to a learner and returns what `observe` saw before any data and every few steps.

    Args:
        learner: the learner.
        state: its state, updated in place.
        blocks: the data in order, in blocks of any number of steps × seeds, as `simulate` gives them.
        observe: what to keep of a state; it must copy what it keeps.
        every: steps between two observations.
    """
    check_count("every", every)
    seen = [observe(state)]
    until_next = every
    for block in blocks:
        start = 0
        while start < len(block.s_t):
            stop = min(start + until_next, len(block.s_t))
            learner.update(state, block.part(start, stop))
            until_next -= stop - start
            start = stop
            if until_next == 0:
                seen.append(observe(state))
                until_next = every
    return seen


def refuse_episodes(transition: Transition) -> None:
    """Raises InputError where an episode starts: E_μ[c] = 1 holds for continuing streams only."""
    if transition.is_initial_t.any():
        raise InputError(
            "a ratio that counts visits has another mean than 1, so it cannot be normalized to it; "
            "use `Problem.restart()`, or no normalization"
        )
