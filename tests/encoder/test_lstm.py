"""The recurrent mixer: its equations, what leaks nowhere, and what it carries on."""

from itertools import combinations

import pytest
import torch

from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.memory import Memory
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import BothWays, Causal, Reversed, SameDocument, Window
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.recipes import Recipe
from recipes_at_toy_size import VOCABULARY, shaken, toy

LENGTH = 12
DIRECTIONS = {"causal": "forward", "reversed": "backward", "both-ways": "both"}
RULES = {"causal": Causal(), "reversed": Reversed(), "both-ways": BothWays()}
DOCUMENTS = torch.tensor([[0] * 5 + [1] * 7, [-1, -1, 0, 0, -1, 0, 0, 0, 1, 1, -1, -1]])
"""Two documents; padding before, within and behind a text."""


def built(*overrides: str, system: str = "lstm-lm") -> Model:
    """A toy in float64 whose every parameter is drawn: biases too."""
    return shaken(Model.build(toy(system, *overrides), VOCABULARY).double(), 0.2)


def reading(rule: str, *overrides: str) -> Model:
    settings = f"encoder.visibility={{kind: and, rules: [{rule}, document]}}"
    asked = f"objectives.causal.direction={DIRECTIONS[rule]}"
    return built("encoder.memory=0", settings, asked, *overrides)


def pieces(num_rows: int = 2, length: int = LENGTH) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(5, VOCABULARY, (num_rows, length), generator=generator)


def lying(document: torch.Tensor) -> Coordinates:
    return Coordinates(torch.arange(document.shape[1])[None], document=document)


def written_out(x, layer, forget, clip=None):
    """x (L, D) through one layer, gate by gate and place by place."""
    names = dict(layer.named_parameters())
    w, r = names["input.weight"].chunk(4), names["recurrent.weight"].chunk(4)
    b = list(names["input.bias"].chunk(4))
    if "second_bias" in names:
        b = [one + two for one, two in zip(b, names["second_bias"].chunk(4), strict=True)]
    projection = names.get("projection.weight")
    h, c, found = x.new_zeros(r[0].shape[1]), x.new_zeros(len(r[0])), []

    def clipped(value):
        return (
            value
            if clip is None
            else torch.maximum(
                torch.minimum(value, torch.full_like(value, clip)), torch.full_like(value, -clip)
            )
        )

    for place in x:
        i, f, g, o = (w[k] @ place + r[k] @ h + b[k] for k in range(4))
        c = torch.sigmoid(f + forget) * c + torch.sigmoid(i) * torch.tanh(g)
        c = clipped(c)
        h = torch.sigmoid(o) * torch.tanh(c)
        if projection is not None:
            h = clipped(projection @ h)
        found.append(h)
    return torch.stack(found)


@pytest.mark.parametrize("system", ["lstm-lm", "awd-lstm"])
def test_a_stack_of_layers_is_its_equations(system):
    model = built(system=system)
    forget = model.recipe.encoder.mixer.forget
    for row, states in zip(pieces(), model(pieces()), strict=True):
        x = model.encoder.embeddings.pieces.weight[row]
        for block in model.encoder.blocks:
            x = written_out(x, block.sublayers["attention"].ways[0], forget)
        torch.testing.assert_close(states, x, atol=1e-9, rtol=1e-9)


def test_two_ways_with_projection_clip_and_residual_are_their_equations():
    model = built(
        "encoder.memory=0",
        "encoder.visibility=both-ways",
        "objectives.causal.direction=both",
        "encoder.embeddings={kind: pieces, norm: false}",
        "encoder.mixer={kind: lstm, cell: 40, clip: 0.3}",
        "encoder.residual={kind: plain, start: 1}",
    )
    for row, states in zip(pieces(), model(pieces()), strict=True):
        x = model.encoder.embeddings.pieces.weight[row]
        halves = [x, x]
        for number, block in enumerate(model.encoder.blocks):
            ahead, back = block.sublayers["attention"].ways
            first = written_out(halves[0], ahead, 1.0, 0.3)
            second = written_out(halves[1].flip(0), back, 1.0, 0.3).flip(0)
            added = number >= 1
            halves = [first + added * halves[0], second + added * halves[1]]
        torch.testing.assert_close(states, torch.cat(halves, 1), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("rule", RULES)
def test_the_fused_pass_is_the_definition(rule):
    models = [
        reading(rule, f"encoder.mixer.kernel={kernel}").float() for kernel in ("explicit", "auto")
    ]
    for coordinates in (None, lying(DOCUMENTS)):
        one, other = (model(pieces(), coordinates) for model in models)
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_nothing_leaks_between_documents_or_from_padding(rule):
    model, entered = reading(rule), []

    def enter(x):
        entered.append(x.detach().requires_grad_())
        return entered[-1]

    with model.replace("embeddings.output", enter):
        states = model(pieces(), lying(DOCUMENTS))
    halves = states.chunk(2, -1) if rule == "both-ways" else [states]
    rules = [Causal(), Reversed()] if rule == "both-ways" else [RULES[rule]]
    where = lying(DOCUMENTS)
    for half, own in zip(halves, rules, strict=True):
        seen = (own & SameDocument()).visible(where.queries(), where.keys())
        seen = seen & (DOCUMENTS >= 0)[:, None]
        for row, place in (DOCUMENTS >= 0).nonzero():
            (gradient,) = torch.autograd.grad(half[row, place].sum(), entered[0], retain_graph=True)
            assert torch.equal(gradient[row].abs().sum(-1) > 0, seen[row, place])


def test_documents_in_a_row_are_documents_apart():
    model = reading("both-ways")
    together = model(pieces(), lying(DOCUMENTS))
    for start, stop in ((0, 5), (5, 12)):
        alone = model(pieces()[:1, start:stop])
        torch.testing.assert_close(together[:1, start:stop], alone)
    real = (DOCUMENTS[1] == 0).nonzero().flatten()
    torch.testing.assert_close(together[1:, real], model(pieces()[1:, real]))


def in_parts(model, document):
    kept, found = Memory.empty(1, pieces(2)), []
    for part, own in zip(pieces(2, 24).split(8, 1), document.split(8, 1), strict=True):
        here = lying(own)
        found.append(model.encoder(part, here, memory=kept))
        kept = kept.following(here)
    return torch.cat(found, 1)


@pytest.mark.parametrize("kernel", ["explicit", "auto"])
def test_a_text_read_in_parts_is_read_as_one(kernel):
    model = built(f"encoder.mixer.kernel={kernel}")
    zero = torch.zeros(2, 24, dtype=torch.int64)
    torch.testing.assert_close(in_parts(model, zero), model(pieces(2, 24)))


def test_what_is_carried_ends_with_its_document():
    model = built()
    # The rows go on with document 0; the second part begins a document with its first place in one
    # row, and later in the other.
    part = [[0] * 5 + [1] * 3 + [1] * 8 + [0] * 8, [0] * 8 + [0] * 3 + [1] * 5 + [0] * 3 + [1] * 5]
    whole = [[0] * 5 + [1] * 3 + [2] * 16, [0] * 11 + [1] * 8 + [2] * 5]
    expected = model(pieces(2, 24), lying(torch.tensor(whole)))
    torch.testing.assert_close(in_parts(model, torch.tensor(part)), expected)


def test_no_gradient_flows_into_what_is_carried():
    model, first = built(), torch.zeros(2, LENGTH, dtype=torch.int64)
    kept, entered = Memory.empty(1, pieces()), []

    def enter(x):
        entered.append(x.detach().requires_grad_())
        return entered[-1]

    with model.replace("embeddings.output", enter):
        model.encoder(pieces(), lying(first), memory=kept)
        kept = kept.following(lying(first))
        states = model.encoder(pieces(), lying(first), memory=kept)
    states.sum().backward()
    assert entered[0].grad is None
    assert kept.states[0].abs().sum() > 0


def test_inner_values_have_names_and_attention_has_none():
    model = reading("both-ways")
    with model.record("blocks.1.*") as values:
        states = model(pieces(), lying(DOCUMENTS))
    torch.testing.assert_close(states, model(pieces(), lying(DOCUMENTS)))
    for way in ("forward", "backward"):
        assert values[f"blocks.1.attention.{way}.cell"].shape == (2, LENGTH, 16)
        assert values[f"blocks.1.attention.{way}.gates"].shape == (2, LENGTH, 64)
        assert values[f"blocks.1.attention.{way}.state"].shape == (2, LENGTH, 16)
    for pattern in ("blocks.*.attention.weights", "blocks.0.attention.scores"):
        refused = pytest.raises(UserError, match=r"there is no .*, a recurrent mixer")
        with refused, model.record(pattern):
            model(pieces())
    with pytest.raises(UserError, match="there is no"), model.encoder.forbid(0, torch.ones(1)):
        model(pieces())


def test_locked_dropout_drops_the_same_at_every_place():
    model = built(
        "encoder.dropout={input: 0.5, hidden: 0.25, output: 0.125}",
        "encoder.embeddings.row_dropout=0",
        "encoder.mixer.dropout=0",
        system="awd-lstm",
    )
    with model.record("*") as values:
        model.encoder(pieces(8), noise=Noise.of(0, 3))
    for name in ("embeddings.output", "blocks.0.residual", "blocks.1.residual"):
        dropped = values[name] == 0
        assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
        assert dropped.any()
    rates = {"embeddings.output": 0.5, "blocks.0.residual": 0.25, "blocks.1.residual": 0.125}
    for name, rate in rates.items():
        assert float((values[name] == 0).double().mean()) == pytest.approx(rate, abs=0.12)


def test_pieces_are_dropped_as_a_whole_wherever_they_stand():
    model = built(
        "encoder.embeddings.row_dropout=0.4", "encoder.mixer.dropout=0", system="awd-lstm"
    )
    with model.record("embeddings.pieces") as values:
        model.encoder(pieces(8), noise=Noise.of(0, 3))
        whole = values["embeddings.pieces"]
        model.encoder(pieces(8)[4:], noise=Noise.of(0, 3, first_row=4))
    assert torch.equal(values["embeddings.pieces"], whole[4:])
    gone = (whole == 0).all(-1)
    assert torch.equal(gone, (whole == 0).any(-1))
    for piece in pieces(8).unique():
        assert gone[pieces(8) == piece].unique().numel() == 1
    assert 0.2 < float(gone.double().mean()) < 0.6


def test_recurrent_weights_are_dropped_once_a_step():
    quiet = ["encoder.dropout=0", "encoder.embeddings.row_dropout=0"]
    model = built(*quiet, "encoder.mixer.dropout=0.5", system="awd-lstm")
    whole = model.encoder(pieces(8), noise=Noise.of(0, 3))
    part = model.encoder(pieces(8)[4:], noise=Noise.of(0, 3, first_row=4))
    torch.testing.assert_close(whole[4:], part)
    assert not torch.allclose(whole, model.encoder(pieces(8), noise=Noise.of(0, 4)))
    assert not torch.allclose(whole, model.encoder(pieces(8)))
    # The first place has no state before it: no recurrent weight is asked.
    torch.testing.assert_close(whole[:, 0], model.encoder(pieces(8))[:, 0])


def test_no_two_layers_or_ways_drop_the_same_weights() -> None:
    model = built("encoder.mixer.dropout=0.5", system="elmo")
    noise = Noise.of(0, 3)
    masks = [
        lstm.weights(noise.within(block), number).recurrent == 0
        for block in range(2)
        for number, lstm in enumerate(model.encoder.blocks[block].sublayers["attention"].ways)
    ]
    assert not any(torch.equal(a, b) for a, b in combinations(masks, 2))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (["encoder.visibility=bidirectional"], "mixer reads place by place: set visibility"),
        (["encoder.positions=rotary"], "set positions to none"),
        (["encoder.memory=5"], "set it to 1"),
        (["encoder.visibility=both-ways"], "set it to 1 and visibility to causal, or memory to 0"),
        (["encoder.depth.sharing=all"], "is not shared by blocks"),
        (["encoder.depth={kind: sublayers, order: sf}"], "must stand in every block"),
        (["encoder.residual.kind=plain"], "set residual.kind to none"),
        (["encoder.visibility=both-ways", "encoder.memory=0"], "direction both and encoder.visib"),
        (["objectives.causal.direction=backward"], "go opposite ways"),
        (["objectives.causal.direction=both"], "direction both and encoder.visibility both-ways"),
    ],
)
def test_what_cannot_be_read_so_is_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        Recipe.load("lstm-lm", *changes)


def test_a_rule_that_is_no_way_to_read_is_refused():
    with pytest.raises(ValueError, match="cannot keep Window"):
        built().encoder(pieces(), rule=Window(size=2))


@pytest.mark.parametrize("rule", ["both-ways", "{kind: or, rules: [causal, both-ways]}"])
def test_only_a_mixer_that_keeps_halves_apart_reads_both_ways(rule):
    with pytest.raises(UserError, match="needs a mixer that keeps two halves apart"):
        Recipe.load("gpt", f"encoder.visibility={rule}")
