"""What can be set about an environment, each under its own name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from covshift.config.ranges import Range, Share, check_ranges


@dataclass(frozen=True)
class EnvOptions:
    """The protocol of the environment; all but `episode_cap` matter to ALE games only."""

    frame_skip: Annotated[int, Range(1, 1000)] = 4
    """Emulator frames per agent step; the observation is the maximum over the last two. A larger number plays faster and reacts later."""

    sticky_actions: Share = 0.25
    """Probability that the emulator repeats the previous action; a larger one makes the game more random."""

    frame_size: Annotated[int, Range(1, 256)] = 84
    """Width and height of the grayscale frame, in pixels."""

    frame_stack: Annotated[int, Range(1, 256)] = 4
    """Newest frames that make one observation; the store keeps each frame once and stacks them on reading."""

    episode_cap: Annotated[int, Range(1, 2_000_000)] | None = None
    """Agent steps after which an episode is truncated; by default 27000 for ALE, 5000 for MinAtar, 1000 for covshift's finite MDPs, otherwise the environment's own."""

    def __post_init__(self) -> None:
        check_ranges(self)
