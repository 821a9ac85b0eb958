"""Adaptive softmax and adaptive input: the equations, the ties, and that probabilities are such."""

import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe
from recipes_at_toy_size import VOCABULARY, shaken, toy, toy_batch

CUTOFFS, BOUNDS = "[10, 25]", ((0, 10), (10, 25), (25, VOCABULARY))
SHARED = f"output={{kind: adaptive, bias: true, cutoffs: {CUTOFFS}}}"
OWN = f"output={{kind: adaptive, bias: true, cutoffs: {CUTOFFS}, narrower: 2}}"
INPUT = (
    f"encoder.embeddings={{kind: adaptive, cutoffs: {CUTOFFS}, narrower: 2, norm: false,"
    f" scaled: true}}"
)
KINDS = {"one table": (SHARED,), "own tables": (OWN,), "adaptive input": (SHARED, INPUT)}

every_kind = pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)


def built(changes) -> Model:
    return shaken(Model.build(toy("transformer-xl", *changes), VOCABULARY).double(), 0.3)


def states() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(60, 32, generator=generator, dtype=torch.float64)


def targets() -> torch.Tensor:
    return torch.arange(60) % VOCABULARY


def table_and_projection(model: Model, cluster: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The table (V_i, E_i) of a cluster, and what takes a state to it (E_i, D)."""
    output, pieces = model.output, model.encoder.embeddings.pieces
    start, stop = BOUNDS[cluster]
    if not len(output.tables):
        return pieces.weight[start:stop], torch.eye(32, dtype=torch.float64)
    projection = torch.eye(32, dtype=torch.float64)
    if hasattr(output.projections[cluster], "weight"):
        projection = output.projections[cluster].weight.t()
    return output.tables[cluster].weight, projection


def probability(model: Model, state: torch.Tensor, piece: int) -> torch.Tensor:
    """Of one piece after one state, written out."""
    output = model.output
    table, projection = table_and_projection(model, 0)
    entered = projection @ state
    frequent = [row @ entered + b for row, b in zip(table, output.bias[:10], strict=True)]
    clusters = [
        row @ entered + b for row, b in zip(output.cluster_weight, output.cluster_bias, strict=True)
    ]
    head = torch.exp(torch.stack(frequent + clusters))
    if piece < 10:
        return head[piece] / head.sum()
    cluster = 1 if piece < 25 else 2
    start, stop = BOUNDS[cluster]
    table, projection = table_and_projection(model, cluster)
    tail = torch.exp(table @ (projection @ state) + output.bias[start:stop])
    return head[10 + cluster - 1] / head.sum() * tail[piece - start] / tail.sum()


@every_kind
def test_operations_are_those_of_tables_and_projections(changes):
    model = built(changes)
    ranks = 1.0 / torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    expected = 2.0 * model.output.cluster_weight.numel()
    for cluster, (start, stop) in enumerate(BOUNDS):
        table, projection = table_and_projection(model, cluster)
        numbers = table.numel()
        if not torch.equal(projection, torch.eye(32, dtype=torch.float64)):
            numbers += projection.numel()
        asked = float(ranks[start:stop].sum() / ranks.sum()) if cluster else 1.0
        expected += 2.0 * numbers * asked
    recipe = model.recipe
    assert recipe.output.operations(recipe.encoder, VOCABULARY) == pytest.approx(expected)


@every_kind
def test_loss_and_logarithms_are_the_equations(changes):
    model = built(changes)
    weight = torch.arange(60).remainder(3).float()
    expected = torch.stack(
        [probability(model, s, int(t)).log() for s, t in zip(states(), targets(), strict=True)]
    )
    logs = model.logits(states())
    found = logs.gather(1, targets()[:, None]).squeeze(1)
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    total = logs.exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-9, rtol=1e-9)
    for weights in (None, weight):
        loss, _ = model.output.loss(states(), model.embedding, targets(), weights)
        each = expected if weights is None else expected * weights
        torch.testing.assert_close(loss, -each.sum(), atol=1e-9, rtol=1e-9)


@every_kind
def test_gradients_are_those_of_the_logarithms(changes):
    model = built(changes)
    parameters = list(model.output.parameters())
    x = states().requires_grad_()
    loss, _ = model.output.loss(x, model.embedding, targets(), None)
    logs = model.logits(x).gather(1, targets()[:, None])
    for one, other in zip(
        torch.autograd.grad(loss, [x, *parameters]),
        torch.autograd.grad(-logs.sum(), [x, *parameters]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@every_kind
def test_an_answer_is_right_if_both_of_its_steps_are(changes):
    model = built(changes)
    logs = model.logits(states())
    frequent, rest = logs[:, :10], [logs[:, a:b] for a, b in BOUNDS[1:]]
    step = torch.cat((frequent, *(r.logsumexp(1, keepdim=True) for r in rest)), 1).argmax(1)
    named = step.clone()
    for number, tail in enumerate(rest):
        there = step == 10 + number
        named[there] = tail.argmax(1)[there] + BOUNDS[number + 1][0]
    for asked in (targets(), named):
        _, right = model.output.loss(states(), model.embedding, asked, None)
        assert int(right) == int((named == asked).sum())


def test_the_vector_of_a_piece_is_a_projected_row_of_its_cluster():
    model = built(KINDS["adaptive input"])
    table = model.encoder.embeddings.pieces
    pieces = torch.tensor([[3, 12], [39, 12]])
    found = table(pieces)
    for at in ((0, 0), (0, 1), (1, 0), (1, 1)):
        piece = int(pieces[at])
        cluster = 0 if piece < 10 else 1 if piece < 25 else 2
        row = table.tables[cluster].weight[piece - BOUNDS[cluster][0]]
        expected = table.projections[cluster].weight @ row
        torch.testing.assert_close(found[at], expected, atol=1e-9, rtol=1e-9)
    assert [t.weight.shape[1] for t in table.tables] == [32, 16, 8]


@every_kind
def test_every_parameter_learns(changes):
    model = Model.build(toy("transformer-xl", *changes), VOCABULARY)
    batch = toy_batch(model.recipe, 0)
    for loss in model.losses(batch, model.recipe.objectives_of(0)).values():
        (loss.sum / loss.count).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_cutoffs_beyond_the_vocabulary_are_left_out():
    model = built([SHARED.replace("[10, 25]", "[10, 25, 40, 900]")])
    assert [(c.start, c.stop) for c in model.output.clusters] == list(BOUNDS)


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("transformer-xl-wikitext", 110_040_318),
        ("transformer-xl-wikitext_large", 39_635_786),
    ],
)
def test_tables_and_projections_that_are_shared_are_counted_once(name, tables):
    recipe = Recipe.load(name)
    parts = parameters_by_part(recipe)
    # The two vectors u and v stand among the positions, with the embeddings.
    assert parts["embeddings"] + parts["output"] - 2 * recipe.encoder.width == tables


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ([SHARED.replace("[10, 25]", "[25, 10]")], "must be ascending"),
        ([SHARED, INPUT.replace("[10, 25]", "[10, 30]")], "with the same cutoffs"),
        ([SHARED, "encoder.embeddings={kind: factorised, width: 16}"], "set output.transform"),
        (["output={kind: tied, transform: false}", INPUT], "with the same cutoffs"),
    ],
)
def test_what_does_not_fit_is_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        Recipe.load("transformer-xl", *changes)
