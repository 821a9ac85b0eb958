"""Incompatible settings are refused when a recipe is loaded; all others train."""

import json

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.models import Model
from bertwright.models.costs import num_parameters_by_part
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.recipes import Recipe
from toy_recipes import VOCABULARY, toy, toy_batches

XL = "encoder.positions=transformer-xl"
PERMUTATION = "{masked: null, next-sentence: null, permutation: {}}"

REFUSED = {
    # Memory: absolute positions, sequences that do not continue, blocks that do not all run.
    "bert; encoder.memory_length=64": "memory_length needs relative positions",
    "bert; encoder.memory_length=64; encoder.positions=rotary": "set assembly.kind=contiguous",
    "transformer-xl; assembly.kind=packed": "encoder.memory_length needs sequences that continue",
    "transformer-xl; encoder.positions=sinusoidal": "memory_length needs relative positions",
    "transformer-xl; encoder.depth.drop=0.1": "memory_length and a weighted residual need",
    "transformer-xl; phases=[{length: 64},{}]": "needs one length and one batch",
    "transformer-xl; encoder.residual=reversible": "norm.placement",
    # Relative position scores, and mixers that do not support them.
    f"performer; {XL}": "mixer does not support relative positions",
    "performer; encoder.positions=alibi": "mixer does not support relative positions",
    "performer; encoder.positions=bucketed": "mixer does not support relative positions",
    f"fixed-patterns; {XL}": "mixer does not support relative positions",
    "fixed-patterns; encoder.positions=alibi": "mixer does not support relative positions",
    f"reformer; {XL}": "mixer does not support relative positions",
    f"longformer; {XL}": "mixer does not support relative positions",
    "performer; encoder.visibility.kind=document": "mixer supports bidirectional",
    "reformer; encoder.sliding_window={every: 2, window: 8}": "mixer supports bidirectional",
    "bert; encoder.mixer.heads=5": "not divisible by 5 heads",
    "transformer-xl; encoder.mixer.scaled=false": "attention that is scaled",
    "t5; encoder.positions.gated=true": "attention that is scaled",
    "t5; decoder.positions={kind: bucketed, gated: true}": "attention that is scaled",
    "bart; decoder.positions={kind: every-block, learned: 1}": "less than the number of blocks",
    "electra; objectives.generated.width=0.35": "width 269 is not divisible by 4 heads",
    "t5; encoder.positions.longest=4": "8 buckets hold one distance each",
    "gpt-bert; encoder.positions.longest=17": "set it to 18 or more",
    "mobilebert; encoder.mixer.width=64": "mixer.width to null",
    "bert; encoder.width=33; encoder.mixer.heads=3; encoder.positions=sinusoidal": "33 is odd",
    "t5; decoder.positions={kind: learned, size: 8}": "more than decoder.positions.size allows",
    "mass; assembly.length=256; decoder.positions={kind: learned, size: 128}": (
        "a length of 256 is more than decoder.positions.size allows"
    ),
    "transformer-xl; encoder.width=33; encoder.mixer.heads=3": "33 is odd",
    "albert; encoder.embeddings.width=63; encoder.positions=sinusoidal": "63 is odd",
    "modern; encoder.width=8; encoder.mixer.head_width=4": "inner width 0 for width 8",
    "elmo; encoder.embeddings.longest=6": "longest is 6, but a filter reads 7",
    # Value embeddings need two blocks for a table, with attention and all tokens.
    "modern-tiny; encoder.value_embeddings={tables: 2}": "set it to 1 or less",
    "sandwich; encoder.value_embeddings={tables: 5}": "attention in the first and the last blocks",
    "performer; encoder.value_embeddings={}": "set mixer.kind to attention",
    "transformer-xl; encoder.value_embeddings={}": "set memory_length to 0",
    "reformer; encoder.value_embeddings={}; encoder.mixer.kind=attention": "residual.kind to plain",
    "modern-tiny; encoder.value_embeddings={}; encoder.pruned_sizes={heads: [1, 1]}": (
        "width of all heads"
    ),
    # Two streams.
    "xlnet; encoder.sliding_window={every: 2, window: 8}": "permutation appends query",
    "xlnet; encoder.visibility={kind: window, size: 8}": "permutation appends query positions",
    "xlnet; encoder.visibility=causal": "permutation appends query positions",
    f"performer; objectives={PERMUTATION}": "permutation appends query positions",
    "reformer; objectives={causal: null, permutation: {}}": "permutation appends query",
    "xlnet; encoder.mixer={kind: random-features}": "mixer does not support relative positions",
    "xlnet; objectives.masked={}": "need different visibility",
    # Sharing, growth, levels.
    "modern; encoder.depth.sharing=all": "omits the first norm, which other blocks share",
    "modern; encoder.depth.sharing=attention": "omits the first norm",
    "albert; phases=[{depth: 0.5},{}]": "blocks that share their parameters cannot be stacked",
    "modern; phases=[{depth: 0.5},{}]": "the first block lacks a norm that its copies need",
    "sandwich; phases=[{depth: 0.5},{}]": "blocks of different sublayers cannot be stacked",
    "gpt-bert; phases=[{depth: 0.5},{}]": "blocks that use the outputs of all earlier ones",
    "albert; optimiser.layer_decay=0.9": "blocks with shared parameters are one level",
    "stacking; optimiser.layer_decay=0.9": "levels need all blocks from the start",
    "bert; phases=[{depth: 0.5},{trainable_layers: 1}]": "levels need all blocks from the start",
    "electra; optimiser.layer_decay=0.9": "a generator's blocks have no levels",
    "transformer-xl; phases=[{depth: 0.5},{}]": "stacked blocks have no memory",
    "albert; phases=[{trainable_layers: 1},{}]": "blocks with shared parameters are one level",
    # The order of objectives.
    'electra; objectives={"more": {"kind": "replaced-token"}}': "objectives.more must be the first",
    'bert; objectives={"more": {"kind": "masked"}}': "would predict tokens that 'masked' shows",
    "gpt; objectives={causal: null, activation-size: {}, permutation: {}}": "list it before all",
    't5; objectives={"denoising": {fraction: 1}, "masked": {}}': "changes the text",
    'bert; objectives={"reordering": {}}': "objectives.reordering must be the first",
    'bert; objectives={"span-boundary": {"of": "mask"}}': "predicts tokens masked by 'mask'",
    'gpt; objectives={"causal": null, "word-order": {}, "masked": {}}': "must not shuffle tokens",
    # The generator shares its embeddings.
    "electra; encoder.embeddings={kind: trigrams, width: 64}": "in another width",
    # Objectives without their input format.
    "ernie-2; phases=[{}]; objectives.discourse-relation.fraction=null": "has its own input format",
    "transformer-xl; objectives={causal: {fraction: 1}, discourse-relation: {fraction: 1}}": (
        "set assembly.kind to one that is not contiguous"
    ),
    "ernie-2; objectives.discourse-relation.connectives=[but, But]": "contains 'but' twice",
    "roberta; objectives.next-sentence={}": "needs pairs",
    "t5; objectives.masked={}": "changes the text",
    # Both directions.
    "t5; assembly={kind: half-reversed, of: full-sentences}": "a decoder generates from the",
    "bert; phases=[{}]; objectives={next-sentence: null}; assembly={kind: contiguous-pair}": (
        "assembly.kind has 3 segments, but the encoder 2"
    ),
    "xlnet; assembly={kind: half-reversed, of: translation-pair}": "which cannot be reversed",
    "transformer-xl; assembly={kind: half-reversed, of: packed}": "set isolated to false",
    "xlnet; assembly=segment-pair": "encoder.memory_length needs sequences that continue",
    "ernie; assembly.parts.pairs={kind: half-reversed, of: segment-pair}": "must stay in order",
    "bert; objectives.ponder={}": "needs adaptive computation",
    # Missing or invalid values.
    "bert; phases=[]": "phases: must hold 1 or more, not",
    "longformer; encoder.visibility.rules=[]": "rules: must hold 1 or more, not",
    "bert; encoder.depth.layers=0": "encoder.depth.layers: must be 1 or more, not 0",
    "bert; encoder.width=0": "encoder.width",
    "bert; steps=abc": "steps: must be a whole number, not 'abc'",
    "bert; precision=fp8": "precision: must be 'float32' or 'bf16', not 'fp8'",
    "bert; encoder.dropout=1.5": "encoder.dropout: must be less than 1, not 1.5",
    "bert; encoder.mixer.dropout=-1": "encoder.mixer.dropout",
    "bert; schedule=-1": "must not be negative",
    "bert; batch_tokens=-5": "at least 1 token",
    "bert; objectives={../x: {kind: masked}}": "'../x' cannot be the name of an objective",
    "bert; objectives={a.b: {kind: masked}}": "'a.b' cannot be the name of an objective",
    "bert; objectives={keys: {kind: masked}}": "'keys' cannot be the name of an objective",
    "bert; objectives.masked.weight=-1": "objectives.masked.weight must not be negative",
    "bert; phases=[{objectives: {masked: {weight: -1}}}]": "objectives.masked.weight must not be",
    "bert; encoder.embeddings.segments=-1": "encoder.embeddings.segments",
    "bert; encoder.initialisation.truncation=-1": "encoder.initialisation.truncation",
    "fixed-patterns; encoder.mixer.patterns=[]": "encoder.mixer.patterns",
    "albert; objectives.masked.selection.longest=40": "objectives.masked.selection.longest",
    "mass; objectives.denoising.noising.corruption.when=static": "set it to dynamic",
    "modern; encoder.width=130; encoder.mixer.head_width=65": "has head width 65",
    "bert; objectives.masked.selection.masking_rate=1.5": "must be a fraction from 0 to 1",
}


@pytest.mark.parametrize(("case", "sentence"), REFUSED.items())
def test_incompatible_settings_are_one_sentence(case: str, sentence: str) -> None:
    name, *changes = case.split("; ")
    with pytest.raises(UserError, match=sentence) as refused:
        Recipe.load(name, *changes)
    assert "\n" not in str(refused.value)


POSITIONS = (
    *("none", "sinusoidal", "rotary", "alibi", "bucketed", "transformer-xl", "log-buckets"),
    *("every-block", "{kind: bucketed, gated: true}", "{kind: axial, shape: [8, 8]}"),
)
CHANGES = (
    *(f"encoder.positions={kind}" for kind in POSITIONS),
    *(f"encoder.depth.sharing={part}" for part in ("all", "attention", "feed-forward")),
    *("encoder.depth.drop=0.2", "encoder.depth.every=2", "encoder.depth.order=sff"),
    "encoder.depth={kind: sublayers, order: ssff}",
    "encoder.depth={kind: sandwich, layers: 3, outside: 0.34}",
    "encoder.depth={kind: loop}",
    *("encoder.depth={kind: halting, layers: 2}", "encoder.depth={kind: none}"),
    *(f"encoder.visibility={rule}" for rule in ("causal", "reversed", "document")),
    "encoder.sliding_window={every: 2, window: 3}",
    "encoder.mixer={kind: hashing, head_width: 16, buckets: 2, chunk: 8, rounds: 2}",
    "encoder.mixer={kind: random-features, head_width: 16, features: 32}",
    "encoder.mixer={kind: fixed-patterns, head_width: 16, patterns: [left]}",
    "encoder.mixer={kind: attention, head_width: 16, gate: gelu}",
    "encoder.mixer={kind: attention, head_width: 16, global_projections: true}",
    *(f"encoder.norm.placement={placement}" for placement in ("pre", "post", "sub")),
    *(f"encoder.residual={kind}" for kind in ("reversible", "weighted", "none")),
    *("encoder.bottleneck={width: 16}", "encoder.embeddings={kind: factorised, width: 16}"),
    *("encoder.embeddings={kind: trigrams, width: 16}", "encoder.embeddings.scaled=true"),
    "encoder.value_embeddings={}",
    *("encoder.embeddings.tasks=2", "encoder.embeddings.languages=[en, de]", "decoder={}"),
)


@pytest.mark.parametrize("system", ["bert", "electra", "xlnet", "sandwich"])
def test_accepted_combinations_train(system: str) -> None:
    num_accepted = 0
    for change in CHANGES:
        try:
            recipe = toy(system, change)
        except UserError:
            continue
        model, num_accepted = Model.build(recipe, VOCABULARY), num_accepted + 1
        for group, batch in zip(recipe.objective_schedule(0), toy_batches(recipe, 0), strict=True):
            losses = model.losses(batch, group.objectives, DropoutRng.for_step(0, 1))
            total = torch.stack([loss.sum for loss in losses.values()]).sum()
            total.backward()
            assert total.isfinite(), change
    assert num_accepted > len(CHANGES) / 2


@pytest.mark.parametrize(("sharing", "attentions", "inner"), [("all", 1, 1), ("attention", 1, 3)])
def test_sublayers_in_any_order_share_with_the_first_of_their_kind(
    sharing: str, attentions: int, inner: int
) -> None:
    depth = {"kind": "sublayers", "order": "sfsffs", "sharing": sharing}
    parts = num_parameters_by_part(toy("gpt-2", f"encoder.depth={json.dumps(depth)}"))
    attention, feed_forward = 4 * (32 * 32 + 32), 2 * 4 * 32 * 32 + 5 * 32
    norm = 2 * 32
    expected = attentions * (attention + norm) + inner * (feed_forward + norm)
    assert parts["blocks"] == expected


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_group_of_blocks_has_the_parameters_of_one(groups: int) -> None:
    def blocks(*changes: str) -> int:
        return num_parameters_by_part(toy("albert", "encoder.depth.layers=4", *changes))["blocks"]

    num_parameters = blocks() if groups == 1 else blocks(f"encoder.depth.groups={groups}")
    assert num_parameters == groups * blocks("encoder.depth.sharing=none") / 4
