"""Matrix products by oneDNN, where torch would take a slower library.

torch multiplies float32 matrices with MKL. On processors with AVX-512 that are not Intel's, MKL keeps to instructions of
half the width, and oneDNN, which torch has on board too, takes about half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_LEAST_SIZE = 2**20
"""Multiplications below which MKL is the faster one."""

HAS_ONEDNN = hasattr(torch.ops.mkldnn, "_linear_pointwise")
"""Whether this build of torch has oneDNN."""


def fast_products(device: torch.device) -> AbstractContextManager[object]:
    """Within it, large matrix products are oneDNN's on CPUs that have AVX-512; on other devices nothing changes."""
    has_avx512 = device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX512"
    return OneDnnProducts() if has_avx512 and HAS_ONEDNN else nullcontext()


@final
class OneDnnProducts(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it, large products of float32 matrices on the CPU are oneDNN's, those of gradients included."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Passes an operation on, or its replacement."""
        product = _PRODUCTS.get(func)
        if product is not None and not kwargs and _is_large(*args[-2:]):
            func = product
        return func(*args, **(kwargs or {}))


def _is_large(left: Tensor, right: Tensor) -> bool:
    rows, inner, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    # Long sums for few results are faster in MKL whatever their size.
    is_large = rows * inner * columns >= _LEAST_SIZE and rows * columns > inner
    return is_large and left.dtype == torch.float32 and left.device.type == "cpu"


def _mm(left: Tensor, right: Tensor) -> Any:
    return _linear(left, right.t())


def _addmm(bias: Tensor, left: Tensor, right: Tensor) -> Any:
    return _linear(left, right.t(), bias)


def _bmm(left: Tensor, right: Tensor) -> Any:
    pairs = zip(left.unbind(), right.mT.unbind(), strict=True)
    return torch.stack([_linear(x, weight) for x, weight in pairs])


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """x wᵀ + bias. Strides are respected, so that a transposed view is not copied."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


_PRODUCTS: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.mm.default: _mm,
    torch.ops.aten.addmm.default: _addmm,
    torch.ops.aten.bmm.default: _bmm,
}
