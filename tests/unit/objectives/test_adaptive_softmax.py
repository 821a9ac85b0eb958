"""Adaptive softmax and adaptive input: the equations, tied tables, probabilities."""

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.models.costs import num_parameters_by_part
from bertwright.recipes import Recipe
from toy_recipes import VOCABULARY, shaken, toy, toy_batch

CUTOFFS, BOUNDS = "[10, 25]", ((0, 10), (10, 25), (25, VOCABULARY))
SHARED = f"output={{kind: adaptive, bias: true, cutoffs: {CUTOFFS}}}"
SEPARATE = f"output={{kind: adaptive, bias: true, cutoffs: {CUTOFFS}, narrower: 2}}"
INPUT = (
    f"encoder.embeddings={{kind: adaptive, cutoffs: {CUTOFFS}, narrower: 2, norm: false,"
    f" scaled: true}}"
)
KINDS = {"one table": (SHARED,), "own tables": (SEPARATE,), "adaptive input": (SHARED, INPUT)}

every_kind = pytest.mark.parametrize("changes", KINDS.values(), ids=KINDS)


def build_model(changes) -> Model:
    return shaken(Model.build(toy("transformer-xl", *changes), VOCABULARY).double(), 0.3)


def states() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(60, 32, generator=generator, dtype=torch.float64)


def targets() -> torch.Tensor:
    return torch.arange(60) % VOCABULARY


def table_and_projection(model: Model, cluster: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the table (V_i, E_i) and the projection (E_i, D) of a cluster."""
    output, token_ids = model.output, model.encoder.embeddings.tokens
    start, stop = BOUNDS[cluster]
    if not len(output.tables):
        return token_ids.weight[start:stop], torch.eye(32, dtype=torch.float64)
    projection = torch.eye(32, dtype=torch.float64)
    if hasattr(output.projections[cluster], "weight"):
        projection = output.projections[cluster].weight.t()
    return output.tables[cluster].weight, projection


def probability(model: Model, state: torch.Tensor, token: int) -> torch.Tensor:
    """Return the probability of a token after a hidden state, by definition."""
    output = model.output
    table, projection = table_and_projection(model, 0)
    projected = projection @ state
    frequent = [row @ projected + b for row, b in zip(table, output.bias[:10], strict=True)]
    clusters = [
        row @ projected + b
        for row, b in zip(output.cluster_weight, output.cluster_bias, strict=True)
    ]
    head = torch.exp(torch.stack(frequent + clusters))
    if token < 10:
        return head[token] / head.sum()
    cluster = 1 if token < 25 else 2
    start, stop = BOUNDS[cluster]
    table, projection = table_and_projection(model, cluster)
    tail = torch.exp(table @ (projection @ state) + output.bias[start:stop])
    return head[10 + cluster - 1] / head.sum() * tail[token - start] / tail.sum()


@every_kind
def test_flops_count_tables_and_projections(changes):
    model = build_model(changes)
    ranks = 1.0 / torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    expected = 2.0 * model.output.cluster_weight.numel()
    for cluster, (start, stop) in enumerate(BOUNDS):
        table, projection = table_and_projection(model, cluster)
        numbers = table.numel()
        if not torch.equal(projection, torch.eye(32, dtype=torch.float64)):
            numbers += projection.numel()
        fraction = float(ranks[start:stop].sum() / ranks.sum()) if cluster else 1.0
        expected += 2.0 * numbers * fraction
    recipe = model.recipe
    assert recipe.output.flops(recipe.encoder, VOCABULARY) == pytest.approx(expected)


@every_kind
def test_loss_and_log_probabilities(changes):
    model = build_model(changes)
    weight = torch.arange(60).remainder(3).float()
    expected = torch.stack(
        [probability(model, s, int(t)).log() for s, t in zip(states(), targets(), strict=True)]
    )
    logs = model.logits(states())
    actual = logs.gather(1, targets()[:, None]).squeeze(1)
    torch.testing.assert_close(actual, expected, atol=1e-9, rtol=1e-9)
    total = logs.exp().sum(1)
    torch.testing.assert_close(total, torch.ones_like(total), atol=1e-9, rtol=1e-9)
    for weights in (None, weight):
        loss, _ = model.output.loss(states(), model.embedding_table, targets(), weights)
        log_probabilities = expected if weights is None else expected * weights
        torch.testing.assert_close(loss, -log_probabilities.sum(), atol=1e-9, rtol=1e-9)


@every_kind
def test_gradients(changes):
    model = build_model(changes)
    parameters = list(model.output.parameters())
    x = states().requires_grad_()
    loss, _ = model.output.loss(x, model.embedding_table, targets(), None)
    logs = model.logits(x).gather(1, targets()[:, None])
    for one, other in zip(
        torch.autograd.grad(loss, [x, *parameters]),
        torch.autograd.grad(-logs.sum(), [x, *parameters]),
        strict=True,
    ):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@every_kind
def test_correct_needs_both_steps(changes):
    model = build_model(changes)
    logs = model.logits(states())
    frequent, rest = logs[:, :10], [logs[:, a:b] for a, b in BOUNDS[1:]]
    step = torch.cat((frequent, *(r.logsumexp(1, keepdim=True) for r in rest)), 1).argmax(1)
    predicted = step.clone()
    for number, tail in enumerate(rest):
        in_cluster = step == 10 + number
        predicted[in_cluster] = tail.argmax(1)[in_cluster] + BOUNDS[number + 1][0]
    for fraction in (targets(), predicted):
        _, num_correct = model.output.loss(states(), model.embedding_table, fraction, None)
        assert int(num_correct) == int((predicted == fraction).sum())


def test_embedding_is_a_projected_row_of_its_cluster():
    model = build_model(KINDS["adaptive input"])
    table = model.encoder.embeddings.tokens
    token_ids = torch.tensor([[3, 12], [39, 12]])
    actual = table(token_ids)
    for index in ((0, 0), (0, 1), (1, 0), (1, 1)):
        token = int(token_ids[index])
        cluster = 0 if token < 10 else 1 if token < 25 else 2
        row = table.tables[cluster].weight[token - BOUNDS[cluster][0]]
        expected = table.projections[cluster].weight @ row
        torch.testing.assert_close(actual[index], expected, atol=1e-9, rtol=1e-9)
    assert [t.weight.shape[1] for t in table.tables] == [32, 16, 8]


@every_kind
def test_every_parameter_has_a_gradient(changes):
    model = Model.build(toy("transformer-xl", *changes), VOCABULARY)
    batch = toy_batch(model.recipe, 0)
    for loss in model.losses(batch, model.recipe.objectives_of(0)).values():
        (loss.sum / loss.count).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_cutoffs_beyond_the_vocabulary_are_ignored():
    model = build_model([SHARED.replace("[10, 25]", "[10, 25, 40, 900]")])
    assert [(c.start, c.stop) for c in model.output.clusters] == list(BOUNDS)


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("transformer-xl-wikitext", 110_040_318),
        ("transformer-xl-wikitext_large", 39_635_786),
    ],
)
def test_shared_parameters_are_counted_once(name, tables):
    recipe = Recipe.load(name)
    parts = num_parameters_by_part(recipe)
    # The two vectors u and v belong to the positions, with the embeddings.
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
def test_incompatible_settings_are_errors(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        Recipe.load("transformer-xl", *changes)
