"""Choices that do not go together are refused when a recipe is read; all others compute."""

import json

import pytest
import torch

from bertwright.encoder.kernels.noise import Noise
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.counting import parameters_by_part
from bertwright.recipes import Recipe
from recipes_at_toy_size import VOCABULARY, toy, toy_batches

XL = "encoder.positions=transformer-xl"
ALONE = "{masked: null, next-sentence: null, permutation: {}}"

REFUSED = {
    # Memory: absolute positions, rows that do not go on, blocks that do not all run.
    "bert; encoder.memory=64": "memory needs positions by distance",
    "bert; encoder.memory=64; encoder.positions=rotary": "set assembly.kind=contiguous",
    "transformer-xl; assembly.kind=packed": "encoder.memory needs rows that go on",
    "transformer-xl; encoder.positions=sinusoidal": "memory needs positions by distance",
    "transformer-xl; encoder.depth.drop=0.1": "memory and a weighted residual need every block",
    "transformer-xl; phases=[{length: 64},{}]": "needs one length and one batch",
    "transformer-xl; encoder.residual=reversible": "norm.placement",
    # Terms of the scores, and mixers that have no scores for them.
    f"performer; {XL}": "positions tell of distances",
    "performer; encoder.positions=alibi": "positions tell of distances",
    "performer; encoder.positions=bucketed": "positions tell of distances",
    f"fixed-patterns; {XL}": "positions tell of distances",
    "fixed-patterns; encoder.positions=alibi": "positions tell of distances",
    f"reformer; {XL}": "positions tell of distances",
    f"longformer; {XL}": "positions tell of distances",
    "performer; encoder.visibility.kind=document": "mixer sees everything, or everything before",
    "reformer; encoder.local={every: 2, window: 8}": "mixer sees everything, or everything before",
    "bert; encoder.mixer.heads=5": "cannot be shared by 5 heads",
    "transformer-xl; encoder.mixer.scaled=false": "attention that is scaled",
    "t5; encoder.positions.gated=true": "attention that is scaled",
    "t5; decoder.positions={kind: bucketed, gated: true}": "attention that is scaled",
    "bart; decoder.positions={kind: every-block, learned: 1}": "less than the number of blocks",
    "electra; objectives.generated.width=0.35": "a width of 269 cannot be shared by 4 heads",
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
    "modern; encoder.width=8; encoder.mixer.head_width=4": "no inner width in states 8 wide",
    "elmo; encoder.embeddings.longest=6": "longest is 6, and a filter reads 7 characters",
    # Two streams.
    "xlnet; encoder.local={every: 2, window: 8}": "objectives.permutation asks from places behind",
    "xlnet; encoder.visibility={kind: window, size: 8}": "objectives.permutation asks from places",
    "xlnet; encoder.visibility=causal": "objectives.permutation asks from places behind",
    f"performer; objectives={ALONE}": "objectives.permutation asks from places behind",
    "reformer; objectives={causal: null, permutation: {}}": "objectives.permutation asks from",
    "xlnet; encoder.mixer={kind: random-features}": "positions tell of distances",
    "xlnet; objectives.masked={}": "see the text differently",
    # Sharing, growth, levels.
    "modern; encoder.depth.sharing=all": "leaves out the first norm, which other blocks share",
    "modern; encoder.depth.sharing=attention": "leaves out the first norm",
    "albert; phases=[{depth: 0.5},{}]": "blocks that share their parameters cannot be stacked",
    "modern; phases=[{depth: 0.5},{}]": "the first block lacks a norm that its copies would need",
    "sandwich; phases=[{depth: 0.5},{}]": "blocks of different sublayers cannot be stacked",
    "gpt-bert; phases=[{depth: 0.5},{}]": "blocks that look back at all before them cannot be",
    "albert; optimiser.layer_decay=0.9": "blocks that share their parameters are one level",
    "stacking; optimiser.layer_decay=0.9": "not all run from the beginning",
    "bert; phases=[{depth: 0.5},{trained: 1}]": "not all run from the beginning",
    "electra; optimiser.layer_decay=0.9": "the blocks of a generator have no levels",
    "transformer-xl; phases=[{depth: 0.5},{}]": "blocks that are new remember nothing",
    "albert; phases=[{trained: 1},{}]": "blocks that share their parameters are one level",
    # The order of questions.
    'electra; objectives={"more": {"kind": "replaced-token"}}': "objectives.more must be the first",
    'bert; objectives={"more": {"kind": "masked"}}': "would ask for what 'masked' shows",
    "gpt; objectives={causal: null, activation-size: {}, permutation: {}}": "list it before all",
    't5; objectives={"denoising": {"share": 1}, "masked": {}}': "rearranges the text",
    'bert; objectives={"reordering": {}}': "objectives.reordering must be the first",
    'bert; objectives={"span-boundary": {"of": "mask"}}': "asks about what 'mask' hides",
    'gpt; objectives={"causal": null, "word-order": {}, "masked": {}}': "leaves alone what",
    # The generator shares its tables.
    "electra; encoder.embeddings={kind: trigrams, width: 64}": "adds? it wider",
    # Questions whose rows are not there.
    "ernie-2; phases=[{}]; objectives.discourse-relation.share=null": "its own: give it a share",
    "transformer-xl; objectives={causal: {share: 1}, discourse-relation: {share: 1}}": (
        "choose an assembly that is not contiguous"
    ),
    "ernie-2; objectives.discourse-relation.connectives=[but, But]": "names 'but' twice",
    "roberta; objectives.next-sentence={}": "needs pairs",
    "t5; objectives.masked={}": "rearranges the text",
    # Both directions.
    "t5; assembly={kind: half-reversed, of: full-sentences}": "a decoder writes them from the",
    "xlnet; assembly={kind: half-reversed, of: translation-pair}": "whose rows are not",
    "transformer-xl; assembly={kind: half-reversed, of: packed}": "set isolated to false",
    "xlnet; encoder.memory=64": "encoder.memory needs rows that go on",
    "ernie; assembly.parts.pairs={kind: half-reversed, of: segment-pair}": "an order of their own",
    "bert; objectives.ponder={}": "needs blocks that halt",
    # Nothing where there must be something.
    "bert; phases=[]": "phases: must hold 1 or more, not",
    "longformer; encoder.visibility.rules=[]": "rules: must hold 1 or more, not",
    "bert; encoder.depth.layers=0": "encoder.depth.layers: must be 1 or more, not 0",
    "bert; encoder.width=0": "encoder.width",
    "bert; steps=abc": "steps: must be a whole number, not 'abc'",
    "bert; precision=fp8": "precision: must be 'float32' or 'bf16', not 'fp8'",
    "bert; encoder.dropout=1.5": "encoder.dropout: must be less than 1, not 1.5",
    "bert; encoder.mixer.dropout=-1": "encoder.mixer.dropout",
    "bert; schedule=-1": "not below 0",
    "bert; batch_tokens=-5": "at least 1 token",
    "bert; objectives={../x: {kind: masked}}": "'../x' cannot be the name of an objective",
    "bert; objectives={a.b: {kind: masked}}": "'a.b' cannot be the name of an objective",
    "bert; objectives={keys: {kind: masked}}": "'keys' cannot be the name of an objective",
    "bert; objectives.masked.weight=-1": "objectives.masked.weight is not below 0",
    "bert; phases=[{objectives: {masked: {weight: -1}}}]": "objectives.masked.weight is not below",
    "bert; encoder.embeddings.segments=-1": "encoder.embeddings.segments",
    "bert; encoder.initialisation.cut=-1": "encoder.initialisation.cut",
    "fixed-patterns; encoder.mixer.patterns=[]": "encoder.mixer.patterns",
    "albert; objectives.masked.selection.longest=40": "objectives.masked.selection.longest",
    "mass; objectives.denoising.noising.corruption.when=static": "set it to dynamic",
    "modern; encoder.width=130; encoder.mixer.head_width=65": "choose an even width of a head",
    "bert; objectives.masked.selection.rate=1.5": "is a share, from 0 to 1",
}


@pytest.mark.parametrize(("words", "sentence"), REFUSED.items())
def test_what_does_not_go_together_is_one_sentence(words: str, sentence: str) -> None:
    name, *changes = words.split("; ")
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
    *("encoder.depth={kind: halting, layers: 2}", "encoder.depth={kind: none}"),
    *(f"encoder.visibility={rule}" for rule in ("causal", "reversed", "document")),
    "encoder.local={every: 2, window: 3}",
    "encoder.mixer={kind: hashing, head_width: 16, buckets: 2, chunk: 8, rounds: 2}",
    "encoder.mixer={kind: random-features, head_width: 16, features: 32}",
    "encoder.mixer={kind: fixed-patterns, head_width: 16, patterns: [left]}",
    "encoder.mixer={kind: attention, head_width: 16, gate: gelu}",
    "encoder.mixer={kind: attention, head_width: 16, global_projections: true}",
    *(f"encoder.norm.placement={place}" for place in ("pre", "post", "sub")),
    *(f"encoder.residual={kind}" for kind in ("reversible", "weighted", "none")),
    *("encoder.bottleneck={width: 16}", "encoder.embeddings={kind: factorised, width: 16}"),
    *("encoder.embeddings={kind: trigrams, width: 16}", "encoder.embeddings.scaled=true"),
    *("encoder.embeddings.tasks=2", "encoder.embeddings.languages=[en, de]", "decoder={}"),
)


@pytest.mark.parametrize("system", ["bert", "electra", "xlnet", "sandwich"])
def test_whatever_is_not_refused_is_trained(system: str) -> None:
    accepted = 0
    for change in CHANGES:
        try:
            recipe = toy(system, change)
        except UserError:
            continue
        model, accepted = Model.build(recipe, VOCABULARY), accepted + 1
        for turn, batch in zip(recipe.turns_of(0), toy_batches(recipe, 0), strict=True):
            losses = model.losses(batch, turn.objectives, Noise.of(0, 1))
            total = torch.stack([loss.sum for loss in losses.values()]).sum()
            total.backward()
            assert total.isfinite(), change
    assert accepted > len(CHANGES) / 2


@pytest.mark.parametrize(("sharing", "attentions", "inner"), [("all", 1, 1), ("attention", 1, 3)])
def test_sublayers_in_any_order_share_with_the_first_of_their_kind(
    sharing: str, attentions: int, inner: int
) -> None:
    depth = {"kind": "sublayers", "order": "sfsffs", "sharing": sharing}
    parts = parameters_by_part(toy("gpt-2", f"encoder.depth={json.dumps(depth)}"))
    attention, feed_forward = 4 * (32 * 32 + 32), 2 * 4 * 32 * 32 + 5 * 32
    norm = 2 * 32
    expected = attentions * (attention + norm) + inner * (feed_forward + norm)
    assert parts["blocks"] == expected


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_group_of_blocks_has_the_parameters_of_one(groups: int) -> None:
    def blocks(*changes: str) -> int:
        return parameters_by_part(toy("albert", "encoder.depth.layers=4", *changes))["blocks"]

    one = blocks() if groups == 1 else blocks(f"encoder.depth.groups={groups}")
    assert one == groups * blocks("encoder.depth.sharing=none") / 4
