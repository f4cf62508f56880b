"""What can be set about an environment, each under its own name."""

from __future__ import annotations

from dataclasses import dataclass

from covshift.errors import InputError


@dataclass(frozen=True)
class EnvOptions:
    """The protocol of the environment; all but `episode_cap` matter to ALE games only."""

    frame_skip: int = 4
    """Emulator frames an agent step; the observation is the maximum over the last two."""

    sticky_actions: float = 0.25
    """Probability that the emulator repeats the previous action."""

    frame_size: int = 84
    """Width and height of the grayscale frame, in pixels."""

    frame_stack: int = 4
    """Newest frames that make an observation; the store keeps each frame once and stacks on reading."""

    episode_cap: int | None = None
    """Agent steps after which an episode is truncated; by default 27000 for ALE, 5000 for MinAtar, 1000 for covshift's finite MDPs, else the environment's own."""

    def __post_init__(self) -> None:
        for name in ("frame_skip", "frame_size", "frame_stack"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, but it is {getattr(self, name)}")
        if not 0.0 <= self.sticky_actions <= 1.0:
            raise InputError(f"sticky_actions must lie in [0, 1], but it is {self.sticky_actions}")
        if self.episode_cap is not None and self.episode_cap < 1:
            raise InputError(f"episode_cap must be at least 1, but it is {self.episode_cap}")
