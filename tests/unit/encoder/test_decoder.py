"""The decoder attends to the source and to earlier targets only, in every system."""

import math

import pytest
import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.encoder.encoder import Encoder
from bertwright.models import Model
from bertwright.modules.attention.cache import KeyValueCache
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.recipes import Recipe
from toy_recipes import SYSTEMS, VOCABULARY, published, shaken, toy, toy_batch

DECODING = [system for system in SYSTEMS if published(system).decoder is not None]
CACHED = [system for system in DECODING if published(system).decoder.supports_cache]
every_decoder = pytest.mark.parametrize("system", DECODING)
every_cached_decoder = pytest.mark.parametrize("system", CACHED)
LENGTH, TARGETS = 14, 9


def build_model(system: str, *overrides: str) -> Model:
    return shaken(Model.build(toy(system, *overrides), VOCABULARY), 0.1)


def random_tokens(length: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCABULARY, (3, length), generator=generator)


def decode(model: Model, source_ids: Tensor, document_ids: Tensor | None = None) -> Tensor:
    token_info = TokenInfo(torch.arange(source_ids.shape[1])[None], document_ids=document_ids)
    assert model.decoder is not None
    source = CrossAttentionSource(model.encoder(source_ids, token_info), token_info)
    return model.decoder.decode(random_tokens(TARGETS, 2), source)


@pytest.mark.parametrize(
    ("system", "kernel"),
    [
        *((system, kernel) for system in CACHED for kernel in ("explicit", "sdpa")),
        *((system, "auto") for system in DECODING if system not in CACHED),
    ],
)
def test_a_target_attends_to_earlier_targets_and_the_source(system: str, kernel: str) -> None:
    model = build_model(system, f"encoder.mixer.kernel={kernel}")
    inputs: dict[str, Tensor] = {}

    def record_input(name: str):
        def record(x: Tensor) -> Tensor:
            inputs[name] = x.detach().requires_grad_()
            return inputs[name]

        return record

    with (
        model.replace("embeddings.output", record_input("source")),
        model.replace("decoder.embeddings.output", record_input("target")),
    ):
        states = decode(model, random_tokens(LENGTH))
    weight = torch.randn(states.shape[2], generator=torch.Generator().manual_seed(0))
    for position in range(TARGETS):
        leaves = [inputs["source"], inputs["target"]]
        output = states[1, position] @ weight
        source, target = torch.autograd.grad(output, leaves, retain_graph=True)
        is_reached = target.abs().sum(-1) > 0
        assert is_reached[1].tolist() == [
            other_position <= position for other_position in range(TARGETS)
        ]
        assert (source[1].abs().sum(-1) > 0).all()
        assert not is_reached[[0, 2]].any()
        assert not source[[0, 2]].any()


@every_decoder
def test_padding_of_the_source_changes_nothing(system: str) -> None:
    model = build_model(system)
    document_ids = torch.zeros(3, LENGTH, dtype=torch.int64)
    document_ids[:, 10:] = -1
    padded = decode(model, random_tokens(LENGTH), document_ids)
    torch.testing.assert_close(
        padded, decode(model, random_tokens(LENGTH)[:, :10]), atol=1e-4, rtol=1e-4
    )


@every_cached_decoder
@torch.no_grad()
def test_decoding_token_by_token_equals_one_pass(system: str) -> None:
    model = build_model(system)
    source = CrossAttentionSource(
        model.encoder(random_tokens(LENGTH)), TokenInfo.from_token_ids(random_tokens(LENGTH))
    )
    targets, decoder, cache = random_tokens(TARGETS, 2), model.decoder, KeyValueCache()
    assert decoder is not None
    whole = decoder.decode(targets, source)
    selected = torch.tensor([2, 0])
    for position in range(TARGETS):
        if position == 4:
            cache.select(selected)
            source, targets, whole = source.select(selected), targets[selected], whole[selected]
        index = torch.tensor([[position]])
        token_info = TokenInfo(index, index, document_ids=torch.zeros(len(targets), 1).long())
        state = decoder(
            targets[:, position : position + 1], token_info, memory=cache, source=source
        )
        torch.testing.assert_close(state[:, 0], whole[:, position], atol=1e-5, rtol=1e-5)


def test_cross_attention_follows_its_definition() -> None:
    model = build_model("t5").double()
    with model.record("decoder.*", "output") as values:
        decode(model, random_tokens(LENGTH))
    name = "decoder.blocks.1.cross_attention"
    module = model.decoder.blocks[1].sublayers["cross_attention"]
    heads, width = module.num_heads, module.inner_width
    query = values[f"{name}.input"] @ module.projection.weight.T
    key, value = (values["output"] @ w.T for w in module.key_value.weight.split(width))
    query, key, value = (x.view(3, -1, heads, width // heads) for x in (query, key, value))
    scores = torch.einsum("bqhd,bkhd->bhqk", query, key)
    torch.testing.assert_close(values[f"{name}.scores"], scores, atol=1e-9, rtol=1e-9)
    context = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value).reshape(3, TARGETS, width)
    expected = context @ module.output.weight.T
    torch.testing.assert_close(values[f"{name}.output"], expected, atol=1e-9, rtol=1e-9)
    middle = values["decoder.blocks.1.residual_middle"] + expected
    torch.testing.assert_close(values["decoder.blocks.1.residual_middle_2"], middle)


def test_a_decoder_without_source_is_a_causal_encoder() -> None:
    """With zero cross-attention output and the same weights, before the norms (T5)."""
    model = build_model("t5").double()
    config = model.recipe.decoder.stack_config(model.recipe.encoder)
    depth = config.depth.model_copy(update={"order": "sf"})
    encoder = Encoder(config.model_copy(update={"depth": depth}), VOCABULARY).double()
    weights = model.decoder.state_dict()
    encoder.load_state_dict({name: value for name, value in weights.items() if "cross" not in name})
    tokens = random_tokens(TARGETS, 2)
    with_source = decode(model, random_tokens(LENGTH))
    assert (with_source - encoder(tokens)).abs().max() > 0.1
    for block in model.decoder.blocks:
        torch.nn.init.zeros_(block.sublayers["cross_attention"].output.weight)
    torch.testing.assert_close(
        decode(model, random_tokens(LENGTH)), encoder(tokens), atol=1e-9, rtol=1e-9
    )


@pytest.mark.parametrize(("system", "offset"), [("bart", 0.0), ("t5", 0.5)])
def test_an_untrained_decoder_predicts_at_chance(system: str, offset: float) -> None:
    """The loss of a random token is the mean log-sum-exp: ln V for small weights.

    T5's logits start with a standard deviation of 1, where the mean of the exponentials is
    exp(1/2).
    """
    vocab_size = 4000
    model = Model.build(toy(system, f"text.tokenizer.vocab_size={vocab_size}"), vocab_size)
    with torch.no_grad():
        log_normaliser = model.logits(decode(model, random_tokens(LENGTH))).logsumexp(-1).mean()
    assert float(log_normaliser) == pytest.approx(math.log(vocab_size) + offset, rel=0.02)


def test_queries_are_initialised_smaller_without_scaling() -> None:
    model = Model.build(toy("t5", "encoder.width=256", "encoder.mixer.head_width=64"), VOCABULARY)
    attention = model.encoder.blocks[0].sublayers["attention"]
    query, key, _ = attention.projection.weight.detach().chunk(3)
    assert float(key.std()) == pytest.approx(256**-0.5, rel=0.02)
    assert float(query.std()) == pytest.approx((256 * 64) ** -0.5, rel=0.02)


def test_heads_may_exceed_the_width_of_the_model() -> None:
    model = build_model("t5", "encoder.mixer={kind: attention, width: 64, head_width: 16}")
    assert model.encoder.blocks[0].sublayers["attention"].output.weight.shape == (32, 64)
    assert decode(model, random_tokens(LENGTH)).shape == (3, TARGETS, 32)


@every_cached_decoder
def test_dropout_differs_between_encoder_and_decoder(system: str) -> None:
    model = build_model(system, "encoder.dropout=0.5", "encoder.norm.placement=pre")
    dropout_rng, batch = DropoutRng.for_step(0, 1), toy_batch(model.recipe, 0)
    objectives = model.recipe.objectives_of(0)
    with model.record("*.residual_middle", "*.attention.output", "*.input") as values:
        model.losses(batch, objectives, dropout_rng)
    is_kept = {}
    for stack in ("blocks.0", "decoder.blocks.0"):
        change = values[f"{stack}.residual_middle"] - values[f"{stack}.input"]
        is_kept[stack] = (change.abs() > 1e-7)[:, :4]
    assert 0.3 < float(is_kept["blocks.0"].float().mean()) < 0.7
    assert not torch.equal(*is_kept.values())


def test_decoder_flops_equal_pytorch_count() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from bertwright.models.costs import flops_per_token

    model = build_model("t5", "encoder.mixer.kernel=explicit")
    length, denoising = model.recipe.assembly.length, model.recipe.objectives["denoising"]
    source = CrossAttentionSource(
        model.encoder(random_tokens(length)), TokenInfo.from_token_ids(random_tokens(length))
    )
    targets = round(denoising.targets_per_token(length) * length)
    with FlopCounterMode(display=False) as counter:
        model.decoder.decode(random_tokens(targets, 2), source)
    expected = 3 * length * flops_per_token(model.recipe).decoder
    assert math.isclose(counter.get_total_flops(), expected)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("decoder=null", "needs a decoder"),
        ("decoder.order=sf", "must hold one c"),
        ("assembly.isolated=true", "assembly.isolated to false"),
        ("encoder.depth={kind: halting}", "set encoder.depth.kind to stack"),
        ("encoder.mixer.gate=gelu", "plain attention"),
        ("objectives.masked={}", "give each a fraction"),
        ("encoder.depth.order=scf", "may hold only the letters"),
        ("encoder.embeddings={kind: adaptive, cutoffs: [100]}", "embeddings with a single table"),
        ("optimiser.layer_decay=0.9", "have no levels"),
        ("phases=[{depth: 0.5}, {}]", "a decoder cannot be stacked"),
    ],
)
def test_unsupported_decoders_are_rejected(change: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Recipe.load("t5", change)
