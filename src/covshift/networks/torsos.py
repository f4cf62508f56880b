"""Torsos: from observations to features. The observation's shape alone decides which torso is used."""

from __future__ import annotations

from typing import cast, final

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from covshift.errors import InputError

_SMALLEST_FRAME = 36
"""Smaller stacks of frames, in pixels per side, could be taken for a grid of MinAtar."""

_SMALLEST_NATURE_FRAME = 60
"""Smaller frames leave less than 4 × 4 places after the Nature convolutions, and 42 pixels a single one."""


@final
class NatureTorso(nn.Module):
    """The convolutions of Mnih et al. (2015) over a stack of grayscale frames, bytes in 0 … 255.

    Args:
        shape: stack × height × width.
        width: filters and hidden units, as a multiple of the usual.
    """

    def __init__(self, shape: tuple[int, ...], width: float = 1.0) -> None:
        super().__init__()
        first, second, third, self.head_hidden = scaled(width, 32, 64, 64, 512)
        self.conv1 = nn.Conv2d(shape[0], first, 8, stride=4)
        self.conv2 = nn.Conv2d(first, second, 4, stride=2)
        self.conv3 = nn.Conv2d(second, third, 3, stride=1)
        sides = [((((side - 8) // 4 + 1) - 4) // 2 + 1) - 2 for side in shape[1:]]
        self.num_features = third * sides[0] * sides[1]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, frames: Tensor) -> Tensor:
        """batch × stack × height × width to batch × features."""
        # Rearranging bytes before they become floats, and dividing the filters instead of the frames by 255, touches
        # a fraction of the memory that the plain order does.
        x = frames.contiguous(memory_format=torch.channels_last).float()
        x = F.relu(F.conv2d(x, self.conv1.weight / 255.0, self.conv1.bias, stride=4))
        x = F.relu(self.conv2(x))
        # Features stay in the order of channels last, so that nothing is copied.
        return F.relu(self.conv3(x)).permute(0, 2, 3, 1).flatten(1)


@final
class SmallFrameTorso(nn.Module):
    """The convolutions of Mnih et al. (2013) over frames of half the usual side, bytes in 0 … 255.

    The first filters have half the usual size and stride, so that 42 × 42 pixels become the maps that 84 × 84 pixels
    become there: 20 × 20, then 9 × 9.

    Args:
        shape: stack × height × width.
        width: filters and hidden units, as a multiple of the usual.
    """

    def __init__(self, shape: tuple[int, ...], width: float = 1.0) -> None:
        super().__init__()
        first, second, self.head_hidden = scaled(width, 16, 32, 256)
        self.conv1 = nn.Conv2d(shape[0], first, 4, stride=2)
        self.conv2 = nn.Conv2d(first, second, 4, stride=2)
        sides = [(((side - 4) // 2 + 1) - 4) // 2 + 1 for side in shape[1:]]
        self.num_features = second * sides[0] * sides[1]

    def forward(self, frames: Tensor) -> Tensor:
        """batch × stack × height × width to batch × features."""
        x = F.relu(F.conv2d(frames.float(), self.conv1.weight / 255.0, self.conv1.bias, stride=2))
        return F.relu(cast(Tensor, self.conv2(x))).flatten(1)


@final
class MinAtarTorso(nn.Module):
    """One convolution of 16 filters of 3 × 3 over MinAtar's planes (Young & Tian, 2019).

    Args:
        shape: height × width × channels.
        width: filters and hidden units, as a multiple of the usual.

    Attributes:
        unfolds: convolve by a matrix product, which can be done for many agents at once; for one agent it is slower.
    """

    def __init__(self, shape: tuple[int, ...], width: float = 1.0) -> None:
        super().__init__()
        rows, columns, channels = shape
        filters, self.head_hidden = scaled(width, 16, 128)
        self.conv = nn.Conv2d(channels, filters, 3)
        self.num_features = filters * (rows - 2) * (columns - 2)
        self.unfolds = False

    def forward(self, planes: Tensor) -> Tensor:
        """batch × height × width × channels to batch × features."""
        if self.unfolds:
            return self._unfolded(planes.float())
        x = F.relu(self.conv(planes.float().permute(0, 3, 1, 2)))
        return x.permute(0, 2, 3, 1).flatten(1)

    def _unfolded(self, planes: Tensor) -> Tensor:
        """The same convolution as one matrix product over all patches of 3 × 3 cells."""
        rows = planes.unfold(2, 3, 1).transpose(3, 4).flatten(3)
        last = rows.shape[1] - 2
        patches = torch.cat([rows[:, k : last + k] for k in range(3)], dim=-1)
        weight = self.conv.weight.permute(2, 3, 1, 0).flatten(0, 2)
        x = patches.flatten(0, 2) @ weight + cast(Tensor, self.conv.bias)
        return F.relu(x).view(len(planes), -1)


@final
class VectorTorso(nn.Module):
    """One hidden layer over a vector.

    Args:
        shape: the vector's length.
        width: hidden units, as a multiple of the usual.
    """

    def __init__(self, shape: tuple[int, ...], width: float = 1.0) -> None:
        super().__init__()
        self.num_features, self.head_hidden = scaled(width, 128, 128)
        self.hidden = nn.Linear(shape[0], self.num_features)

    def forward(self, vectors: Tensor) -> Tensor:
        """batch × length to batch × features."""
        return F.relu(cast(Tensor, self.hidden(vectors.float())))


Torso = NatureTorso | SmallFrameTorso | MinAtarTorso | VectorTorso


def scaled(width: float, *sizes: int) -> list[int]:
    """Sizes of layers at a width, at least 1 each.

    Example:
        >>> scaled(0.25, 16, 128), scaled(1 / 16, 8)
        ([4, 32], [1])
    """
    return [max(1, round(width * size)) for size in sizes]


def make_torso(state_shape: tuple[int, ...], width: float = 1.0) -> Torso:
    """The torso for states of this shape; `width` multiplies the number of units in every layer.

    Raises:
        InputError: no torso takes such states.
    """
    if len(state_shape) == 1:
        return VectorTorso(state_shape, width)
    if len(state_shape) == 3 and min(state_shape[1:]) >= _SMALLEST_FRAME:
        is_small = min(state_shape[1:]) < _SMALLEST_NATURE_FRAME
        return (SmallFrameTorso if is_small else NatureTorso)(state_shape, width)
    if len(state_shape) == 3 and 3 <= min(state_shape[:2]) <= max(state_shape[:2]) <= 32:
        return MinAtarTorso(state_shape, width)
    raise InputError(
        f"no network takes states of shape {state_shape}: vectors, stacks of frames of at least "
        f"{_SMALLEST_FRAME} pixels per side, and grids of at most 32 × 32 × planes are known"
    )
