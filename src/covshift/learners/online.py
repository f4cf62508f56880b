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

    def step(self, state: StateT, transition: Transition) -> None:
        """Updates the state in place with one transition of every seed."""


def train(
    learner: Learner[StateT],
    state: StateT,
    transitions: Iterable[Transition],
    *,
    observe: Callable[[StateT], Observed],
    every: int,
) -> list[Observed]:
    """Feeds transitions to a learner and returns what `observe` saw before and every few steps.

    Args:
        learner: the learner.
        state: its state, updated in place.
        transitions: the data, one step of every seed at a time.
        observe: what to keep of a state; it must copy what it keeps.
        every: how many steps lie between two observations.

    Returns:
        The observations, the first of them before any data.
    """
    check_count("every", every)
    seen = [observe(state)]
    for count, transition in enumerate(transitions, start=1):
        learner.step(state, transition)
        if count % every == 0:
            seen.append(observe(state))
    return seen


def refuse_episodes(transition: Transition) -> None:
    """Raises InputError where an episode starts: E_μ[c] = 1 holds for continuing streams only."""
    if transition.is_initial_t.any():
        raise InputError(
            "a ratio that counts visits has another mean than 1, so it cannot be normalized to it; "
            "use `Problem.restart()`, or no normalization"
        )
