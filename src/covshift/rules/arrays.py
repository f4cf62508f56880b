"""The arrays that rules take: NumPy's or torch's, never a mix of both in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

ArrayT = TypeVar("ArrayT", NDArray[np.float64], "Tensor")
