"""The recurrent mixer: its equations, no leaks, and the state it carries on."""

from itertools import combinations

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import (
    CausalVisibility,
    ForwardBackwardVisibility,
    ReverseCausalVisibility,
    SameDocumentVisibility,
    WindowVisibility,
)
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe
from toy_recipes import VOCABULARY, shaken, toy

LENGTH = 12
DIRECTIONS = {"causal": "forward", "reversed": "backward", "both-ways": "both"}
RULES = {
    "causal": CausalVisibility(),
    "reversed": ReverseCausalVisibility(),
    "both-ways": ForwardBackwardVisibility(),
}
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [-1, -1, 0, 0, -1, 0, 0, 0, 1, 1, -1, -1]])
"""Two documents; padding before, within and after a text."""


def build_model(*overrides: str, system: str = "lstm-lm") -> Model:
    """Build a toy in float64 with noise on every parameter, biases too."""
    return shaken(Model.build(toy(system, *overrides), VOCABULARY).double(), 0.2)


def build_directional(rule: str, *overrides: str) -> Model:
    settings = f"encoder.visibility={{kind: and, rules: [{rule}, document]}}"
    objective = f"objectives.causal.direction={DIRECTIONS[rule]}"
    return build_model("encoder.memory_length=0", settings, objective, *overrides)


def random_tokens(batch_size: int = 2, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (batch_size, length), generator=generator)


def token_info_of(document: torch.Tensor) -> TokenInfo:
    return TokenInfo(torch.arange(document.shape[1])[None], document_ids=document)


def run_by_hand(x, layer, forget, clip=None):
    """Run x (L, D) through one layer, gate by gate and token by token."""
    names = dict(layer.named_parameters())
    w, r = names["input.weight"].chunk(4), names["recurrent.weight"].chunk(4)
    b = list(names["input.bias"].chunk(4))
    if "recurrent_bias" in names:
        b = [one + two for one, two in zip(b, names["recurrent_bias"].chunk(4), strict=True)]
    projection = names.get("projection.weight")
    h, c, outputs = x.new_zeros(r[0].shape[1]), x.new_zeros(len(r[0])), []

    def clipped(value):
        return (
            value
            if clip is None
            else torch.maximum(
                torch.minimum(value, torch.full_like(value, clip)), torch.full_like(value, -clip)
            )
        )

    for token in x:
        i, f, g, o = (w[k] @ token + r[k] @ h + b[k] for k in range(4))
        c = torch.sigmoid(f + forget) * c + torch.sigmoid(i) * torch.tanh(g)
        c = clipped(c)
        h = torch.sigmoid(o) * torch.tanh(c)
        if projection is not None:
            h = clipped(projection @ h)
        outputs.append(h)
    return torch.stack(outputs)


@pytest.mark.parametrize("system", ["lstm-lm", "awd-lstm"])
def test_a_stack_follows_the_equations(system):
    model = build_model(system=system)
    forget = model.recipe.encoder.mixer.forget
    for tokens, states in zip(random_tokens(), model(random_tokens()), strict=True):
        x = model.encoder.embeddings.tokens.weight[tokens]
        for block in model.encoder.blocks:
            x = run_by_hand(x, block.sublayers["attention"].direction_layers[0], forget)
        torch.testing.assert_close(states, x, atol=1e-9, rtol=1e-9)


def test_both_directions_with_projection_clip_and_residual():
    model = build_model(
        "encoder.memory_length=0",
        "encoder.visibility=both-ways",
        "objectives.causal.direction=both",
        "encoder.embeddings={kind: tokens, norm: false}",
        "encoder.mixer={kind: lstm, cell: 40, clip: 0.3}",
        "encoder.residual={kind: plain, start: 1}",
    )
    for tokens, states in zip(random_tokens(), model(random_tokens()), strict=True):
        x = model.encoder.embeddings.tokens.weight[tokens]
        halves = [x, x]
        for number, block in enumerate(model.encoder.blocks):
            ahead, back = block.sublayers["attention"].direction_layers
            first = run_by_hand(halves[0], ahead, 1.0, 0.3)
            second = run_by_hand(halves[1].flip(0), back, 1.0, 0.3).flip(0)
            added = number >= 1
            halves = [first + added * halves[0], second + added * halves[1]]
        torch.testing.assert_close(states, torch.cat(halves, 1), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_the_fused_kernel_equals_the_definition(rule):
    models = [
        build_directional(rule, f"encoder.mixer.kernel={kernel}").float()
        for kernel in ("explicit", "auto")
    ]
    for token_info in (None, token_info_of(DOCUMENTS)):
        actual, expected = (model(random_tokens(), token_info) for model in models)
        torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_leaks_between_documents_or_from_padding(rule):
    model, inputs = build_directional(rule), []

    def record_input(x):
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    with model.replace("embeddings.output", record_input):
        states = model(random_tokens(), token_info_of(DOCUMENTS))
    halves = states.chunk(2, -1) if rule == "both-ways" else [states]
    rules = (
        [CausalVisibility(), ReverseCausalVisibility()] if rule == "both-ways" else [RULES[rule]]
    )
    where = token_info_of(DOCUMENTS)
    for half, rule in zip(halves, rules, strict=True):
        allowed = (rule & SameDocumentVisibility()).visible(where.as_queries(), where.as_keys())
        allowed = allowed & (DOCUMENTS >= 0)[:, None]
        for sequence, position in (DOCUMENTS >= 0).nonzero():
            (gradient,) = torch.autograd.grad(
                half[sequence, position].sum(), inputs[0], retain_graph=True
            )
            assert torch.equal(gradient[sequence].abs().sum(-1) > 0, allowed[sequence, position])


def test_packed_documents_are_independent():
    model = build_directional("both-ways")
    together = model(random_tokens(), token_info_of(DOCUMENTS))
    for start, stop in ((0, 5), (5, 12)):
        alone = model(random_tokens()[:1, start:stop])
        torch.testing.assert_close(together[:1, start:stop], alone)
    real = (DOCUMENTS[1] == 0).nonzero().flatten()
    torch.testing.assert_close(together[1:, real], model(random_tokens()[1:, real]))


def read_in_parts(model, document):
    memory, states = Memory.empty(1, random_tokens(2)), []
    for part, document_ids in zip(
        random_tokens(2, 24).split(8, 1), document.split(8, 1), strict=True
    ):
        token_info = token_info_of(document_ids)
        states.append(model.encoder(part, token_info, memory=memory))
        memory = memory.next_memory(token_info)
    return torch.cat(states, 1)


def test_a_text_read_backward_in_parts_equals_one_pass():
    model = build_model(system="awd-lstm-backward")
    # Documents are counted within each part; a part that begins with a new document starts at 1.
    part = [[0] * 5 + [1] * 3 + [1] * 8 + [0] * 8, [0] * 8 + [0] * 3 + [1] * 5 + [0] * 3 + [1] * 5]
    whole = [[0] * 5 + [1] * 3 + [2] * 16, [0] * 11 + [1] * 8 + [2] * 5]
    stream, isolated = (
        ReverseCausalVisibility(),
        ReverseCausalVisibility() & SameDocumentVisibility(),
    )
    for rule, parts, expected_documents in (
        (stream, torch.zeros(2, 24, dtype=torch.int64), torch.zeros(2, 24, dtype=torch.int64)),
        (isolated, torch.tensor(part), torch.tensor(whole)),
    ):
        memory, states = Memory.empty(1, random_tokens(2), follows_text=True), []
        for start in (16, 8, 0):
            token_info = token_info_of(parts[:, start : start + 8])
            tokens = random_tokens(2, 24)[:, start : start + 8]
            states.insert(0, model.encoder(tokens, token_info, rule, memory=memory))
            memory = memory.next_memory(token_info)
        expected = model.encoder(random_tokens(2, 24), token_info_of(expected_documents), rule)
        torch.testing.assert_close(torch.cat(states, 1), expected)


@pytest.mark.parametrize("kernel", ["explicit", "auto"])
def test_a_text_read_in_parts_equals_one_pass(kernel):
    model = build_model(f"encoder.mixer.kernel={kernel}")
    zero = torch.zeros(2, 24, dtype=torch.int64)
    torch.testing.assert_close(read_in_parts(model, zero), model(random_tokens(2, 24)))


def test_the_carried_state_ends_with_its_document():
    model = build_model()
    # The sequences continue document 0; in the second part a document begins with the first token
    # of one sequence, and later in the other.
    part = [[0] * 5 + [1] * 3 + [1] * 8 + [0] * 8, [0] * 8 + [0] * 3 + [1] * 5 + [0] * 3 + [1] * 5]
    whole = [[0] * 5 + [1] * 3 + [2] * 16, [0] * 11 + [1] * 8 + [2] * 5]
    expected = model(random_tokens(2, 24), token_info_of(torch.tensor(whole)))
    torch.testing.assert_close(read_in_parts(model, torch.tensor(part)), expected)


def test_no_gradient_flows_into_the_carried_state():
    model, first = build_model(), torch.zeros(2, LENGTH, dtype=torch.int64)
    memory, inputs = Memory.empty(1, random_tokens()), []

    def record_input(x):
        inputs.append(x.detach().requires_grad_())
        return inputs[-1]

    with model.replace("embeddings.output", record_input):
        model.encoder(random_tokens(), token_info_of(first), memory=memory)
        memory = memory.next_memory(token_info_of(first))
        states = model.encoder(random_tokens(), token_info_of(first), memory=memory)
    states.sum().backward()
    assert inputs[0].grad is None
    assert memory.hidden_states[0].abs().sum() > 0


def test_hooks_of_inner_values():
    model = build_directional("both-ways")
    with model.record("blocks.1.*") as values:
        states = model(random_tokens(), token_info_of(DOCUMENTS))
    torch.testing.assert_close(states, model(random_tokens(), token_info_of(DOCUMENTS)))
    for direction in ("forward", "backward"):
        assert values[f"blocks.1.attention.{direction}.cell"].shape == (2, LENGTH, 16)
        assert values[f"blocks.1.attention.{direction}.gates"].shape == (2, LENGTH, 64)
        assert values[f"blocks.1.attention.{direction}.state"].shape == (2, LENGTH, 16)
    for pattern in ("blocks.*.attention.weights", "blocks.0.attention.scores"):
        is_rejected = pytest.raises(UserError, match=r"there is no .*, a recurrent mixer")
        with is_rejected, model.record(pattern):
            model(random_tokens())
    with (
        pytest.raises(UserError, match="there is no"),
        model.encoder.mask_attention(0, torch.ones(1)),
    ):
        model(random_tokens())


def test_locked_dropout_is_the_same_at_every_position():
    model = build_model(
        "encoder.dropout={input: 0.5, hidden: 0.25, output: 0.125}",
        "encoder.embeddings.embedding_dropout=0",
        "encoder.mixer.dropout=0",
        system="awd-lstm",
    )
    with model.record("*") as values:
        model.encoder(random_tokens(8), dropout_rng=DropoutRng.for_step(0, 3))
    for name in ("embeddings.output", "blocks.0.residual", "blocks.1.residual"):
        dropped = values[name] == 0
        assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
        assert dropped.any()
    rates = {"embeddings.output": 0.5, "blocks.0.residual": 0.25, "blocks.1.residual": 0.125}
    for name, rate in rates.items():
        assert float((values[name] == 0).double().mean()) == pytest.approx(rate, abs=0.12)


def test_embedding_dropout_drops_whole_tokens():
    model = build_model(
        "encoder.embeddings.embedding_dropout=0.4", "encoder.mixer.dropout=0", system="awd-lstm"
    )
    with model.record("embeddings.tokens") as values:
        model.encoder(random_tokens(8), dropout_rng=DropoutRng.for_step(0, 3))
        whole = values["embeddings.tokens"]
        model.encoder(random_tokens(8)[4:], dropout_rng=DropoutRng.for_step(0, 3, first_sequence=4))
    assert torch.equal(values["embeddings.tokens"], whole[4:])
    is_dropped = (whole == 0).all(-1)
    assert torch.equal(is_dropped, (whole == 0).any(-1))
    for token in random_tokens(8).unique():
        assert is_dropped[random_tokens(8) == token].unique().numel() == 1
    assert 0.2 < float(is_dropped.double().mean()) < 0.6


def test_recurrent_weights_are_dropped_once_a_step():
    no_dropout = ["encoder.dropout=0", "encoder.embeddings.embedding_dropout=0"]
    model = build_model(*no_dropout, "encoder.mixer.dropout=0.5", system="awd-lstm")
    whole = model.encoder(random_tokens(8), dropout_rng=DropoutRng.for_step(0, 3))
    part = model.encoder(
        random_tokens(8)[4:], dropout_rng=DropoutRng.for_step(0, 3, first_sequence=4)
    )
    torch.testing.assert_close(whole[4:], part)
    assert not torch.allclose(
        whole, model.encoder(random_tokens(8), dropout_rng=DropoutRng.for_step(0, 4))
    )
    assert not torch.allclose(whole, model.encoder(random_tokens(8)))
    # The first token has no previous state: recurrent weights do not matter.
    torch.testing.assert_close(whole[:, 0], model.encoder(random_tokens(8))[:, 0])


def test_layers_and_directions_drop_different_weights() -> None:
    model = build_model("encoder.mixer.dropout=0.5", system="elmo")
    dropout_rng = DropoutRng.for_step(0, 3)
    masks = [
        lstm.build_weights(dropout_rng.for_block(block), number).recurrent == 0
        for block in range(2)
        for number, lstm in enumerate(
            model.encoder.blocks[block].sublayers["attention"].direction_layers
        )
    ]
    assert not any(torch.equal(a, b) for a, b in combinations(masks, 2))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["encoder.visibility={kind: window, size: 2}"], "mixer is recurrent: set visibility"),
        (["encoder.positions=rotary"], "set positions.kind to none"),
        (["encoder.memory_length=5"], "set it to 1"),
        (
            ["encoder.visibility=both-ways"],
            "set it to 1 and visibility to causal or reversed",
        ),
        (["encoder.depth.sharing=all"], "cannot be shared by blocks"),
        (["encoder.depth={kind: sublayers, order: sf}"], "must be in every block"),
        (["encoder.residual.kind=plain"], "set residual.kind to none"),
        (
            ["encoder.visibility=both-ways", "encoder.memory_length=0"],
            "direction both and encoder.visib",
        ),
        (["objectives.causal.direction=backward"], "have opposite directions"),
        (["objectives.causal.direction=both"], "direction both and encoder.visibility both-ways"),
    ],
)
def test_incompatible_settings_are_rejected(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        Recipe.load("lstm-lm", *changes)


def test_a_rule_without_reading_direction_is_rejected():
    with pytest.raises(UserError, match="rules out Window"):
        build_model().encoder(random_tokens(), visibility=WindowVisibility(size=2))


@pytest.mark.parametrize("rule", ["both-ways", "{kind: or, rules: [causal, both-ways]}"])
def test_both_ways_needs_separate_halves(rule):
    with pytest.raises(UserError, match="needs a mixer with separate halves"):
        Recipe.load("gpt", f"encoder.visibility={rule}")
