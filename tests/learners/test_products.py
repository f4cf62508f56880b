"""oneDNN's matrix products in place of MKL's: the same numbers, also in gradients."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from covshift.learners.deep.products import _LEAST_SIZE, HAS_ONEDNN, OneDnnProducts, fast_products

pytestmark = pytest.mark.skipif(not HAS_ONEDNN, reason="this build of torch has no oneDNN")


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def names_of_calls(left: Tensor, right: Tensor) -> set[str]:
    with torch.profiler.profile() as profile, OneDnnProducts():
        left @ right
    return {event.key for event in profile.key_averages()}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (random(32, 1024), random(1024, 128)),
        (random(32, 1024), random(128, 1024).t()),
        (random(32, 128).t(), random(32, 1024)),
        (random(3, 64, 128), random(3, 128, 1024)),
        (random(3, 64, 128), random(3, 1024, 128).mT),
        (random(3, 32, 128).mT, random(3, 32, 1024)),
    ],
    ids=["plain", "right transposed", "left transposed", "batch", "batch, right", "batch, left"],
)
def test_products_are_those_of_torch(left: Tensor, right: Tensor) -> None:
    with OneDnnProducts():
        product = left @ right
    torch.testing.assert_close(product.double(), left.double() @ right.double(), rtol=0, atol=2e-4)
    assert "mkldnn::_linear_pointwise" in names_of_calls(left, right)


def test_gradients_of_a_layer_are_those_of_torch() -> None:
    layer, x = torch.nn.Linear(1024, 128), random(64, 1024).requires_grad_()
    exact = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    with OneDnnProducts():
        found = torch.autograd.grad(layer(x).square().sum(), [x, *layer.parameters()])
    for ours, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (random(32, 128), random(128, 6)),
        (random(16, _LEAST_SIZE // 256), random(_LEAST_SIZE // 256, 16)),
        (random(32, 1024).double(), random(1024, 128).double()),
    ],
    ids=["short", "long sum", "double precision"],
)
def test_other_products_stay_as_they_are(left: Tensor, right: Tensor) -> None:
    assert "mkldnn::_linear_pointwise" not in names_of_calls(left, right)


def test_other_devices_are_left_alone() -> None:
    """A mode costs time at every call, which would show on a GPU."""
    assert isinstance(fast_products(torch.device("cuda")), nullcontext)
