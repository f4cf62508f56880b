"""Shards that another process makes ahead of who reads them, in the order of their numbers."""

from __future__ import annotations

from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import final

from covshift.data.collection import Request, make_shard
from covshift.data.format import shard_name
from covshift.data.parallel import become_worker
from covshift.errors import InputError

_AHEAD = 2
"""Shards that are made before they are asked for."""


@final
class ShardPrefetcher:
    """A collection that goes on while its first shards are read; a shard that is there is not made again.

    Args:
        request: what to collect.
        out: the folder, in which `Collector.prepare` has been.
    """

    def __init__(self, request: Request, out: Path) -> None:
        self._request, self._out = request, out
        self._pool = ProcessPoolExecutor(1, get_context("spawn"), become_worker)
        self._made: list[Future[None]] = []

    def get(self, index: int) -> Path:
        """The shard of this number, once it is sealed; later ones are begun."""
        while len(self._made) <= index + _AHEAD:
            number = len(self._made)
            self._made.append(self._pool.submit(_make, self._request, self._out, number))
        try:
            self._made[index].result()
        except BrokenProcessPool as error:
            raise InputError(
                "the collecting process was killed; the same command goes on"
            ) from error
        return self._out / shard_name(index)

    def close(self) -> None:
        """Ends the process after the shard that it is at."""
        self._pool.shutdown(cancel_futures=True)


def _make(request: Request, out: Path, index: int) -> None:
    make_shard(request, out, index, lambda _: None)
