"""Embedding lookup, and a gradient that sums repeated tokens exactly."""

import torch

from bertwright.modules.embedding_lookup import embedding_lookup, set_in_place_gradient


def test_value_and_gradient_equal_indexing():
    table = torch.randn(20, 4, requires_grad=True)
    index = torch.randint(0, 20, (3, 11))
    weight = torch.randn(3, 11, 4)
    embeddings = embedding_lookup(table, index)
    torch.testing.assert_close(embeddings, table[index])
    (actual,) = torch.autograd.grad((embeddings * weight).sum(), table)
    (expected,) = torch.autograd.grad((table[index] * weight).sum(), table)
    torch.testing.assert_close(actual, expected)


def test_gradient_is_added_in_place_where_that_is_chosen():
    table = torch.nn.Parameter(torch.zeros(5, 2))
    gradient = torch.ones(5, 2)
    set_in_place_gradient(table, gradient)
    embedding_lookup(table, torch.tensor([3, 3])).sum().backward()
    assert table.grad is gradient
    assert table.grad.tolist() == [[1, 1], [1, 1], [1, 1], [3, 3], [1, 1]]


def test_gradient_is_returned_beside_an_existing_one():
    table = torch.zeros(5, 2, requires_grad=True)
    table.grad = torch.ones(5, 2)
    loss = embedding_lookup(table, torch.tensor([3, 3])).sum()
    (gradient,) = torch.autograd.grad(loss, table)
    assert gradient.tolist() == [[0, 0], [0, 0], [0, 0], [2, 2], [0, 0]]
    assert table.grad.tolist() == [[1, 1]] * 5


def test_frequent_tokens_keep_their_gradient_in_bfloat16():
    table = torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True)
    embedding_lookup(table, torch.zeros(1000, dtype=torch.int64)).sum().backward()
    assert float(table.grad[0, 0]) == 1000.0
