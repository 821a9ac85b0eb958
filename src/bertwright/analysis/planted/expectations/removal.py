"""Heads of which one alone writes anything, and layers that do nothing."""

from collections.abc import Iterator

import numpy as np
import torch

from bertwright.analysis.analysis import Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.findings import Stored
from bertwright.analysis.planted.attention import Heads, pointing
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import SENTENCES, small_case, small_subject
from bertwright.analysis.questions import in_halves
from bertwright.analysis.removal.fixed_heads import ONE_LEARNED, FixedHeads, patterns
from bertwright.analysis.removal.fixed_heads import PATTERNS as FIXED
from bertwright.analysis.removal.gates import gated, open_gates
from bertwright.analysis.removal.importance import HeadImportance, importances
from bertwright.analysis.removal.layers import LayerRedundancy
from bertwright.analysis.removal.learned_gates import GATE, LearnedGates
from bertwright.analysis.removal.one_head import OneHead
from bertwright.analysis.removal.single_heads import SingleHeads
from bertwright.analysis.removal.translation_heads import (
    PARTS,
    WHOLE,
    WITHOUT,
    HeadsOf,
    TranslationHeads,
)
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import read_texts
from bertwright.analysis.translating import Translating, bleu, counts, sacrebleu
from bertwright.tasks.formats.examples import Example

LIVE = (1, 2)
"""The layer and the head that write anything."""


def single_heads() -> Iterator[Expected]:
    """Without any head but the live one nothing changes."""
    own = live_case()
    found = SingleHeads().run(own)
    lost = {(f.layer, f.head): f.value for f in found.findings}
    yield equal("what the dead are worth", [lost[at] for at in lost if at != LIVE], 0, 0)
    yield above("what the live one is worth, either way", abs(lost[LIVE]), 1e-9)


def one_head() -> Iterator[Expected]:
    """With the live head alone nothing is lost."""
    found = OneHead().run(live_case())
    losses, whole = found.arrays["losses"], found.arrays["whole"]
    yield equal("losses with the live head alone", losses[LIVE], whole, 0)
    yield equal(
        "losses of a layer of dead heads", losses[0], np.broadcast_to(whole, losses[0].shape), 0
    )


def importance() -> Iterator[Expected]:
    """It is the slope of the loss in the gate, and nothing where nothing is written; the curve ends
    where all heads are gone."""
    own = small_case()
    asking, step, at = Asking(own.subject, own.texts), 1e-5, (1, 3)
    moved: list[np.ndarray] = []
    for sign in (1, -1):
        gates = open_gates(own.subject)
        gates[at] += sign * step
        with gated(own.subject, gates):
            moved.append(asking.asked().loss)
    slope = np.abs(moved[0] - moved[1]).mean() / (2 * step)
    yield equal("against a central difference", importances(asking)[at] / slope, 1, 1e-5)
    live = live_case()
    yield same("heads that matter", (importances(Asking(live.subject, live.texts)) > 0).sum(), 1)
    found = HeadImportance(step=0.25, orders=2).run(own)
    with gated(own.subject, 0 * open_gates(own.subject)):
        gone = in_halves(own)[1].asked().mean
    ends = [found.arrays[name][-1] for name in ("importance", "oracle")]
    yield equal("ends of the curves", ends, gone, 0)


def layers() -> Iterator[Expected]:
    """A layer that does nothing can go."""
    own = small_case("gpt-2")
    with torch.no_grad():
        for last in ("attention.output", "feed_forward.down"):
            module = own.subject.encoder.blocks[1].get_submodule(f"sublayers.{last}")
            for parameter in module.parameters():
                parameter.zero_()
    found = LayerRedundancy().run(own)
    lost = [f.value for f in found.findings if "loss" in f.metric and f.layer == 1]
    yield equal("what the layer is worth", lost, 0, 0)
    yield equal("likeness of what goes in and comes out", found.arrays["likeness"][1, 2], 1)


def learned_gates() -> Iterator[Expected]:
    """A gate is open as often as its chance says; the dead close and take nothing with them."""
    logits = torch.linspace(-4, 4, 9, dtype=torch.float64)
    drawn = (torch.arange(100_000, dtype=torch.float64)[:, None] + 0.5) / 100_000
    often = (GATE.gates(logits, drawn) > 0).double().mean(0)
    yield equal("chances against how often it is so", GATE.open_chance(logits), often, 1e-4)
    own = live_case()
    gates = GATE.gates(LearnedGates(steps=120).learned(Asking(own.subject, own.texts), 1.0))
    dead = torch.ones_like(gates, dtype=torch.bool)
    dead[LIVE] = False
    yield below("gates of the dead", gates[dead], 0)


def fixed_heads() -> Iterator[Expected]:
    """Heads that look along patterns are known by them, and lose nothing by them; rows of patterns
    sum to one, and hold nothing that is not seen."""
    own = small_case()
    heads: Heads = {0: ("self", "previous", "next", "opening"), 1: ("end", "self", "next", "end")}
    with pointing(own.subject, heads):
        found = FixedHeads().run(own)
    told = [[FIXED[n] for n in row] for row in found.arrays["pattern"]]
    wanted = [["itself", "previous", "next", "first"], ["last", "itself", "next", "last"]]
    yield same("patterns", told, wanted)
    yield equal("overlap with them", found.arrays["overlap"].max(-1), 1)
    for metric in ("fixed, less as it is", f"{ONE_LEARNED}, less as they are"):
        yield equal(metric, [f.value for f in found.findings if f.metric == metric], 0, 1e-9)
    seen, real = torch.ones(6, 6).tril().bool()[None, None], torch.ones(1, 6).bool()
    for name, rows in zip(FIXED, patterns(seen, real), strict=True):
        yield equal(f"sums of {name}", rows.sum(-1), 1)
        yield equal(f"{name}, not seen", rows[~seen.expand_as(rows)], 0, 0)


def translation_heads() -> Iterator[Expected]:
    """BLEU of sums is that of all texts; a head that is away says nothing, whether it is gated or
    its outputs are gone; without what is dead nothing changes."""
    said, right = SENTENCES[:4], [*SENTENCES[1:4], SENTENCES[0]]
    pairs = [counts(own, other) for own, other in zip(said, right, strict=True)]
    of_all = sacrebleu().corpus_score(said, [right]).score
    yield equal("BLEU of sums", bleu(np.sum(pairs, 0)), of_all, 1e-9)
    own = translator_case()
    translating = Translating(own.subject, own.texts, longest=8)
    for part in PARTS:
        heads = HeadsOf(own.subject, part)
        with heads.gated((1, 2), keep=False):
            gated_away = translating.said()
        kill(own.subject, part)
        yield same(f"said without a head, {part}", translating.said(), gated_away)
        with heads.gated((1, 2), keep=False):
            yield same(f"said without a dead head, {part}", translating.said(), gated_away)
    found = TranslationHeads(longest=8).run(own)
    yield same("heads", len(found.findings), 1 + 3 * (2 * 4 + 2))
    stored = Stored({}, [finding.as_dict() for finding in found.findings], found.arrays)
    shown = [[len(row) for row in own.rows] for own in TranslationHeads().tables(stored)]
    yield same("cells of the tables", shown, [[2 + 4] * 3 * 2, [1 + 3] * 2])


def translations(stored: Stored) -> Iterator[Expected]:
    """The toy says texts backwards; it finds the words by heads that look at what was read."""
    (whole,) = (f for f in stored.findings if f["metric"] == WHOLE)
    yield above("BLEU", whole["value"], 50)
    lost = {part: stored.grid(f"{WITHOUT}: {part}").min() for part in PARTS}
    yield above("what is lost with a head that looks at what was read", -lost["cross-attention"], 5)


def translator_case() -> Case:
    """A small model that translates, as it is drawn."""
    subject = small_subject("transformer")
    pairs = [Example(a, b) for a, b in zip(SENTENCES, reversed(SENTENCES), strict=True)]
    return Case(subject, read_texts(subject, pairs))


def kill(subject: Subject, part: str) -> None:
    """Make nothing of what a head of the second layer writes."""
    stack = subject.encoder if part == "encoder" else subject.text_model.model.decoder
    name = "cross_attention" if part == "cross-attention" else "attention"
    assert stack is not None, "a model that translates has a decoder"
    weight = stack.blocks[1].get_parameter(f"sublayers.{name}.output.weight")
    with torch.no_grad():
        weight.view(len(weight), stack.heads, -1)[:, 2] = 0


def live_case() -> Case:
    """A small model of which one head writes."""
    own = small_case()
    with torch.no_grad():
        for layer, block in enumerate(own.subject.encoder.blocks):
            weight = block.get_submodule("sublayers.attention.output").weight
            assert isinstance(weight, torch.Tensor)
            by_head = weight.view(len(weight), own.subject.num_heads, -1)
            for head in range(own.subject.num_heads):
                if (layer, head) != LIVE:
                    by_head[:, head] = 0
    return own
