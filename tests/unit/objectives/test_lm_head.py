"""The LM head: its cost, rows of the table without a token, and maxima over positions."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from toy_recipes import VOCABULARY, shaken, toy

UNUSED = [3, VOCABULARY - 1]


def restricted_model() -> Model:
    model = shaken(Model.build(toy("bert"), VOCABULARY), 0.3)
    used = [token for token in range(VOCABULARY) if token not in UNUSED]
    model.output.restrict_to_tokens(torch.tensor(used))
    return model


@pytest.mark.parametrize("transform", [True, False])
def test_cost_is_two_operations_for_each_weight(transform: bool) -> None:
    recipe = toy("bert", f"output.transform={str(transform).lower()}")
    model = Model.build(recipe, VOCABULARY)
    num_weights = model.embedding_table.numel()
    num_weights += model.output.transform.dense.weight.numel() if transform else 0
    assert recipe.output.flops(recipe.encoder, VOCABULARY) == 2 * num_weights


def test_shared_embeddings_need_the_width_of_the_hidden_states() -> None:
    narrow = "encoder.embeddings={kind: factorised, width: 16}"
    with pytest.raises(UserError, match="token embeddings have width 16, hidden states 32"):
        toy("bert", narrow, "output={kind: tied, transform: false}")


@pytest.mark.parametrize("kind", ["tied", "untied", "extended"])
def test_only_tied_heads_read_the_embeddings(kind: str) -> None:
    width = 16 if kind == "extended" else 32
    recipe = toy(
        "modern", f"encoder.embeddings={{kind: factorised, width: {width}}}", f"output.kind={kind}"
    )
    model = shaken(Model.build(recipe, VOCABULARY), 0.3)
    states = torch.randn(6, 32, generator=torch.Generator().manual_seed(0))
    logits, others = (
        model.output.logits(states, scale * model.embedding_table) for scale in (1.0, 2.0)
    )
    assert recipe.output.is_tied == bool((logits != others).any())


def test_rows_without_a_token_are_never_predicted() -> None:
    model = restricted_model()
    head, table = model.output, model.embedding_table
    states = torch.randn(6, table.shape[1], generator=torch.Generator().manual_seed(0))
    full = head.full_logits(states, table).detach()
    expected = full.clone()
    expected[:, UNUSED] = -torch.inf
    torch.testing.assert_close(head.logits(states, table), expected)
    labels = torch.arange(6) + 4
    for is_training, logits in ((True, full), (False, expected)):
        with torch.set_grad_enabled(is_training):
            loss, num_correct = head.loss(states, table, labels, None)
        cross_entropy = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
        torch.testing.assert_close(loss.detach(), cross_entropy)
        assert num_correct == (logits.argmax(1) == labels).sum()


def test_largest_logits_are_those_over_the_positions_of_a_text() -> None:
    model = restricted_model()
    head, table = model.output, model.embedding_table
    states = torch.randn(2, 5, table.shape[1], generator=torch.Generator().manual_seed(0))
    is_read = torch.tensor([[True] * 5, [True, False, True, False, False]])
    logits = head.logits(states.flatten(0, 1), table).view(2, 5, -1)
    expected = logits.masked_fill(~is_read[..., None], -torch.inf).amax(1)
    torch.testing.assert_close(head.max_logits(states, table, is_read), expected)
