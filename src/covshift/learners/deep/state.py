"""What a checkpoint holds of a learner or a replay."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor


class LearnerState(NamedTuple):
    """All that changes, by name.

    Attributes:
        tensors: contiguous copies or views.
        values: what JSON can hold.
    """

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def tensors_under(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names start with the prefix, without it."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.tensors.items()
            if name.startswith(prefix)
        }
