"""Products chosen for the processor are those of torch, in every precision and whichever way they are computed."""

from __future__ import annotations

import pytest
import torch

from pairsift.match import kernels, sgraf_kernels
from pairsift.match.kernels import linear, product
from pairsift.match.sgraf_kernels import _add_product, _attended_differences, _batched_product


@pytest.mark.parametrize("shape", [(9, 12), (2, 3, 12), (1, 12), (0, 12)])
def test_linear_maps_and_their_gradients_are_those_of_torch(shape):
    torch.manual_seed(0)
    tensors = [torch.randn(*size, requires_grad=True) for size in (shape, (10, 12), (10,))]
    gradient = torch.randn(*shape[:-1], 10)
    one, other = linear(*tensors), torch.nn.functional.linear(*tensors)
    torch.testing.assert_close(one, other)
    for a, b in zip(
        torch.autograd.grad(one, tensors, gradient), torch.autograd.grad(other, tensors, gradient), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_products_of_transposed_views(dtype):
    torch.manual_seed(0)
    left, right = torch.randn(8, 30).to(dtype), torch.randn(8, 20).to(dtype)
    expected = left.double().T @ right.double()
    torch.testing.assert_close(product(left.T, right.T).double(), expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("wide", [3, 70])  # fewer and more rows than a product for each matrix takes
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [True, False])
def test_batched_products_and_differences_are_those_of_loops(wide, dtype, shared):
    torch.manual_seed(0)
    weights, context = torch.randn(4, wide, 5, dtype=dtype), torch.randn(4, 5, 9, dtype=dtype)
    words = torch.randn(1 if shared else 4, wide, 9, dtype=dtype)
    expected = torch.stack([weights[i] @ context[i] - words[0 if shared else i] for i in range(4)])
    torch.testing.assert_close(_attended_differences(weights, context, words), expected)
    out = torch.empty(4, 5, 9, dtype=dtype)
    _batched_product(weights.transpose(1, 2), expected, out)
    torch.testing.assert_close(out, torch.stack([weights[i].T @ expected[i] for i in range(4)]))


def test_one_row_a_matrix_is_multiplied_too():
    left, right, out = torch.randn(2, 1, 80), torch.randn(2, 80, 3), torch.empty(2, 1, 3)
    _batched_product(left, right, out)
    torch.testing.assert_close(out, torch.bmm(left, right))


def test_a_product_is_added_in_the_precision_of_the_total():
    left, right, total = torch.randn(6, 40).bfloat16(), torch.randn(40, 3).bfloat16(), torch.ones(6, 3)
    expected = 1 + left.float() @ right.float()
    _add_product(total, left, right)
    torch.testing.assert_close(total, expected, rtol=1e-2, atol=5e-2)


def test_without_onednn_the_results_are_the_same(monkeypatch):
    torch.manual_seed(0)
    x, weight, context = torch.randn(70, 5), torch.randn(4, 5), torch.randn(1, 5, 9)
    words = torch.randn(1, 70, 9)
    found = product(x, weight), _attended_differences(x[None], context, words)
    for module in (kernels, sgraf_kernels):
        monkeypatch.setattr(module, "has_onednn", lambda dtype: False)
    for one, other in zip(found, (product(x, weight), _attended_differences(x[None], context, words)), strict=True):
        torch.testing.assert_close(one, other)
