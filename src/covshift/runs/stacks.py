"""Several runs in one process, their agents updated as one stack.

Each run has its own folder, lock, generators, samplers, metrics and checkpoints, as if it were alone. So a run can
be started alone and finished in a stack, or the other way round, with the same numbers up to rounding. Within
stacks of any size its numbers are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial

from covshift.data.store import Store
from covshift.errors import InputError
from covshift.learners.deep import AgentStack, Batches, Diverged
from covshift.records import RunFolder
from covshift.runs.launch import resume_run
from covshift.runs.signals import stop_requests
from covshift.runs.training import Interrupted, Trainer


def resume_stack(
    folders: Sequence[RunFolder],
    say: Callable[[str], None],
    trusted_modules: Collection[str] = (),
) -> None:
    """Trains runs to their ends as one stack; Ctrl-C saves them all first. Runs that are over are left out.

    Args:
        folders: runs that were created, with equal `stack_key`.
        say: called with each message for the user.
        trusted_modules: modules that the runs' policies may import; see `resume_run`.

    Raises:
        Interrupted: after checkpoints of all runs were written.
        InputError: a run cannot be continued, or the runs cannot be stacked.
    """
    stores: dict[str, Store] = {}
    with ExitStack() as closed:
        trainers = []
        for folder in folders:
            if folder.status()["status"] in ("finished", "diverged"):
                continue
            told = partial(_say_of, folder, say)
            trainer = resume_run(folder, None, told, trusted_modules, stores)
            trainers.append(closed.enter_context(closing(trainer)))
        if not trainers:
            raise InputError("all of these runs are over")
        with stop_requests() as asked:
            for left in run_stacked(trainers, say):
                if asked:
                    for trainer in left:
                        trainer.save_interrupted()
                    raise Interrupted(f"saved {len(left)} runs; the same command continues")


def run_stacked(
    trainers: Sequence[Trainer], say: Callable[[str], None]
) -> Iterator[Sequence[Trainer]]:
    """One update of all runs after the other, until each run has ended; yields the runs that are left.

    A run that diverges or is done leaves the stack, and the others continue.
    """
    active = _begun(trainers, say)
    while active:
        stack = AgentStack([trainer.learner for trainer in active])
        left = active
        while len(left) == len(active):
            left = _update(active, stack, say)
            yield left
        active = left


def _begun(trainers: Sequence[Trainer], say: Callable[[str], None]) -> list[Trainer]:
    """Writes what comes before the first update; returns the runs that have updates to do."""
    begun = []
    for trainer in trainers:
        try:
            trainer.begin()
        except Diverged as error:
            _end_diverged(trainer, error, say)
            continue
        if trainer.is_done:  # It was killed before it could say so.
            trainer.finish()
        else:
            begun.append(trainer)
    return begun


def _update(
    trainers: Sequence[Trainer], stack: AgentStack, say: Callable[[str], None]
) -> list[Trainer]:
    """One update of each run; returns the runs that continue."""
    draws = [trainer.replay.draw(trainer.update) for trainer in trainers]
    results = stack.update([Batches(draw.values, draw.states, draw.loss_weights) for draw in draws])
    left = []
    for trainer, draw, result in zip(trainers, draws, results, strict=True):
        try:
            if isinstance(result, Diverged):
                raise result
            trainer.take_in(draw, result)
            trainer.log_if_due()
        except Diverged as error:
            _end_diverged(trainer, error, say)
            continue
        if trainer.is_done:
            trainer.finish()
        else:
            left.append(trainer)
    return left


def _end_diverged(trainer: Trainer, error: Diverged, say: Callable[[str], None]) -> None:
    trainer.write_divergence(error)
    say(f"{trainer.folder.path} diverged: {error}; its last checkpoint is kept")


def _say_of(folder: RunFolder, say: Callable[[str], None], text: str) -> None:
    say(f"{folder.path}: {text}")
