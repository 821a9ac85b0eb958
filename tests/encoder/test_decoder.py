"""A target sees the source and earlier targets only, whatever the system."""

import math

import pytest
import torch
from torch import Tensor

from bertwright.encoder.cache import Cache
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates, Source
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.recipes import Recipe
from recipes_at_toy_size import SYSTEMS, VOCABULARY, published, shaken, toy, toy_batch

DECODING = [system for system in SYSTEMS if published(system).decoder is not None]
every_decoder = pytest.mark.parametrize("system", DECODING)
LENGTH, TARGETS = 14, 9


def built(system: str, *overrides: str) -> Model:
    return shaken(Model.build(toy(system, *overrides), VOCABULARY), 0.1)


def pieces(length: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (3, length), generator=generator)


def decoded(model: Model, read: Tensor, document: Tensor | None = None) -> Tensor:
    coordinates = Coordinates(torch.arange(read.shape[1])[None], document=document)
    assert model.decoder is not None
    source = Source(model.encoder(read, coordinates), coordinates)
    return model.decoder.states(pieces(TARGETS, 2), source)


@every_decoder
@pytest.mark.parametrize("kernel", ["explicit", "sdpa"])
def test_a_target_sees_earlier_targets_and_all_of_the_source(system: str, kernel: str) -> None:
    model = built(system, f"encoder.mixer.kernel={kernel}")
    entered: dict[str, Tensor] = {}

    def enter(name: str):
        def keep(x: Tensor) -> Tensor:
            entered[name] = x.detach().requires_grad_()
            return entered[name]

        return keep

    with (
        model.replace("embeddings.output", enter("source")),
        model.replace("decoder.embeddings.output", enter("target")),
    ):
        states = decoded(model, pieces(LENGTH))
    weight = torch.randn(states.shape[2], generator=torch.Generator().manual_seed(0))
    for place in range(TARGETS):
        of = [entered["source"], entered["target"]]
        said = states[1, place] @ weight
        source, target = torch.autograd.grad(said, of, retain_graph=True)
        reached = target.abs().sum(-1) > 0
        assert reached[1].tolist() == [other <= place for other in range(TARGETS)]
        assert (source[1].abs().sum(-1) > 0).all()
        assert not reached[[0, 2]].any()
        assert not source[[0, 2]].any()


@every_decoder
def test_padding_of_the_source_changes_nothing(system: str) -> None:
    model = built(system)
    document = torch.zeros(3, LENGTH, dtype=torch.int64)
    document[:, 10:] = -1
    together = decoded(model, pieces(LENGTH), document)
    torch.testing.assert_close(
        together, decoded(model, pieces(LENGTH)[:, :10]), atol=1e-4, rtol=1e-4
    )


@every_decoder
@torch.no_grad()
def test_targets_that_are_read_one_by_one_are_read_as_in_one_pass(system: str) -> None:
    model = built(system)
    source = Source(model.encoder(pieces(LENGTH)), Coordinates.plain(pieces(LENGTH)))
    given, decoder, cache = pieces(TARGETS, 2), model.decoder, Cache()
    assert decoder is not None
    whole = decoder.states(given, source)
    chosen = torch.tensor([2, 0])
    for place in range(TARGETS):
        if place == 4:
            cache.select(chosen)
            source, given, whole = source.select(chosen), given[chosen], whole[chosen]
        at = torch.tensor([[place]])
        coordinates = Coordinates(at, at, document=torch.zeros(len(given), 1).long())
        part = decoder(given[:, place : place + 1], coordinates, memory=cache, source=source)
        torch.testing.assert_close(part[:, 0], whole[:, place], atol=1e-5, rtol=1e-5)


def test_cross_attention_is_its_definition() -> None:
    model = built("t5").double()
    with model.record("decoder.*", "output") as values:
        decoded(model, pieces(LENGTH))
    name = "decoder.blocks.1.cross_attention"
    module = model.decoder.blocks[1].sublayers["cross_attention"]
    heads, width = module.heads, module.width
    query = values[f"{name}.input"] @ module.projection.weight.T
    key, value = (values["output"] @ w.T for w in module.source.weight.split(width))
    query, key, value = (x.view(3, -1, heads, width // heads) for x in (query, key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key)
    torch.testing.assert_close(values[f"{name}.scores"], scores, atol=1e-9, rtol=1e-9)
    context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value).reshape(3, TARGETS, width)
    expected = context @ module.output.weight.T
    torch.testing.assert_close(values[f"{name}.output"], expected, atol=1e-9, rtol=1e-9)
    middle = values["decoder.blocks.1.residual_middle"] + expected
    torch.testing.assert_close(values["decoder.blocks.1.residual_middle_2"], middle)


def test_a_decoder_that_hears_nothing_of_the_source_is_a_causal_encoder() -> None:
    """Where cross-attention writes nothing, with the same weights, before the norms (t5)."""
    model = built("t5").double()
    choice = model.recipe.decoder.of(model.recipe.encoder)
    depth = choice.depth.model_copy(update={"order": "sf"})
    alone = Encoder(choice.model_copy(update={"depth": depth}), VOCABULARY).double()
    own = model.decoder.state_dict()
    alone.load_state_dict({name: value for name, value in own.items() if "cross" not in name})
    given = pieces(TARGETS, 2)
    heard = decoded(model, pieces(LENGTH))
    assert (heard - alone(given)).abs().max() > 0.1
    for block in model.decoder.blocks:
        torch.nn.init.zeros_(block.sublayers["cross_attention"].output.weight)
    torch.testing.assert_close(decoded(model, pieces(LENGTH)), alone(given), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(("system", "above"), [("bart", 0.0), ("t5", 0.5)])
def test_an_untrained_decoder_guesses(system: str, above: float) -> None:
    """For a random piece the loss is the mean of log sum exp: ln V for small weights;
    T5's logits begin as numbers of deviation 1, the mean of whose exponentials is exp(1/2)."""
    size = 4000
    model = Model.build(toy(system, f"text.tokenizer.size={size}"), size)
    with torch.no_grad():
        found = model.logits(decoded(model, pieces(LENGTH))).logsumexp(-1).mean()
    assert float(found) == pytest.approx(math.log(size) + above, rel=0.02)


def test_queries_begin_smaller_where_scores_are_not_scaled() -> None:
    model = Model.build(toy("t5", "encoder.width=256", "encoder.mixer.head_width=64"), VOCABULARY)
    attention = model.encoder.blocks[0].sublayers["attention"]
    query, key, _ = attention.projection.weight.detach().chunk(3)
    assert float(key.std()) == pytest.approx(256**-0.5, rel=0.02)
    assert float(query.std()) == pytest.approx((256 * 64) ** -0.5, rel=0.02)


def test_heads_may_be_wider_together_than_the_model() -> None:
    model = built("t5", "encoder.mixer={kind: attention, width: 64, head_width: 16}")
    assert model.encoder.blocks[0].sublayers["attention"].output.weight.shape == (32, 64)
    assert decoded(model, pieces(LENGTH)).shape == (3, TARGETS, 32)


@every_decoder
def test_what_is_dropped_in_a_decoder_is_not_what_is_dropped_in_the_encoder(system: str) -> None:
    model = built(system, "encoder.dropout=0.5", "encoder.norm.placement=pre")
    noise, batch = Noise.of(0, 1), toy_batch(model.recipe, 0)
    objectives = model.recipe.objectives_of(0)
    with model.record("*.residual_middle", "*.attention.output", "*.input") as values:
        model.losses(batch, objectives, noise)
    kept = {}
    for stack in ("blocks.0", "decoder.blocks.0"):
        change = values[f"{stack}.residual_middle"] - values[f"{stack}.input"]
        kept[stack] = (change.abs() > 1e-7)[:, :4]
    assert 0.3 < float(kept["blocks.0"].float().mean()) < 0.7
    assert not torch.equal(*kept.values())


def test_the_arithmetic_of_a_decoder_is_what_pytorch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from bertwright.model.counting import arithmetic

    model = built("t5", "encoder.mixer.kernel=explicit")
    length, denoising = model.recipe.assembly.length, model.recipe.objectives["denoising"]
    source = Source(model.encoder(pieces(length)), Coordinates.plain(pieces(length)))
    targets = round(denoising.per_place(length) * length)
    with FlopCounterMode(display=False) as counter:
        model.decoder.states(pieces(targets, 2), source)
    expected = 3 * length * arithmetic(model.recipe).decoder
    assert math.isclose(counter.get_total_flops(), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("decoder=null", "needs a decoder"),
        ("decoder.order=sf", "must hold one c"),
        ("assembly.isolated=true", "assembly isolated to false"),
        ("encoder.depth={kind: halting}", "set encoder.depth.kind to stack"),
        ("encoder.mixer.gate=gelu", "plain attention"),
        ("objectives.masked={}", "give each a share"),
        ("encoder.depth.order=scf", "may hold only the letters"),
        ("encoder.embeddings={kind: adaptive, cutoffs: [100]}", "embeddings of one table"),
        ("optimiser.layer_decay=0.9", "have no levels"),
        ("phases=[{depth: 0.5}, {}]", "a decoder cannot be stacked"),
    ],
)
def test_a_decoder_that_cannot_be_says_why(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Recipe.load("t5", change)
