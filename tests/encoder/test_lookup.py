"""A table's rows, and a gradient that sums repeated rows exactly."""

import torch

from bertwright.encoder.kernels.lookup import lookup


def test_value_and_gradient_equal_indexing():
    table = torch.randn(20, 4, requires_grad=True)
    index = torch.randint(0, 20, (3, 11))
    weight = torch.randn(3, 11, 4)
    rows = lookup(table, index)
    torch.testing.assert_close(rows, table[index])
    (found,) = torch.autograd.grad((rows * weight).sum(), table)
    (expected,) = torch.autograd.grad((table[index] * weight).sum(), table)
    torch.testing.assert_close(found, expected)


def test_gradient_is_added_to_one_that_is_there():
    table = torch.zeros(5, 2, requires_grad=True)
    table.grad = torch.ones(5, 2)
    lookup(table, torch.tensor([3, 3])).sum().backward()
    assert table.grad.tolist() == [[1, 1], [1, 1], [1, 1], [3, 3], [1, 1]]


def test_frequent_rows_keep_their_gradient_in_bfloat16():
    table = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    lookup(table, torch.zeros(1000, dtype=torch.int64)).sum().backward()
    assert float(table.grad[0, 0]) == 1000.0
