"""What a translation is worth without a head, and with one head a layer (Michel et al. 2019)."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case, Shown
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import lacks_halves
from bertwright.analysis.translating import Counts, Translating, bleu
from bertwright.significance import benjamini_hochberg, halves, of_sums

PARTS = {
    "encoder": "blocks.{}.attention.context",
    "cross-attention": "decoder.blocks.{}.cross_attention.context",
    "decoder": "decoder.blocks.{}.attention.context",
}
"""Whose heads there are, and where."""

WHOLE = "BLEU with all heads"
WITHOUT = "BLEU without the head, less that of all"
ALONE = "BLEU with this head alone, less that of all"


class TranslationHeads(Analysis):
    """BLEU without each head of the encoder, of the decoder, and of its attention to the encoder;
    and with one head alone in a layer, which is chosen by half of the texts and judged by the
    other. Nothing is done in the place of what a head writes. What is said ends after ``longest``
    pieces."""

    kind: Literal["translation-heads"] = "translation-heads"
    longest: int = Field(default=64, ge=1)
    number = "B15"
    group = "heads"
    question = "What is a translation worth without a head, and with one head a layer?"
    source = "Michel et al. 2019"

    def lacks(self, case: Case) -> str | None:
        lacking = lacks_halves(case.texts, "choose by")
        return lacking or Translating(case.subject, case.texts).lacks()

    def run(self, case: Case) -> Found:
        translating = Translating(case.subject, case.texts, self.longest)
        whole = translating.counted()
        findings = [_of_all(whole, case.seed)]
        arrays: dict[str, NDArray[np.float64]] = {"whole": whole}
        for part in PARTS:
            heads = HeadsOf(case.subject, part)
            without, alone = (
                np.stack([heads.counted(translating, at, keep) for at in np.ndindex(heads.shape)])
                for keep in (False, True)
            )
            arrays |= {f"{part}, without": without, f"{part}, alone": alone}
            findings += _without(part, heads.shape, without, whole, case.seed)
            findings += _alone(part, heads.shape, alone, whole, case.seed)
        return Found(findings, arrays)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        of = {
            part: [f for f in stored.findings if f["metric"] == f"{WITHOUT}: {part}"]
            for part in PARTS
        }
        worse = [f["adjusted"] < 0.05 and f["value"] < 0 for own in of.values() for f in own]
        alone = {
            part: [f["value"] for f in stored.findings if f["metric"] == f"{ALONE}: {part}"]
            for part in PARTS
        }
        others = [value for part in ("encoder", "decoder") for value in alone[part]]
        return [
            Conclusion(
                "most heads can be taken away, one at a time, without a loss that shows",
                "all but 8 of 96 heads of the encoder",
                float(np.mean(worse)),
                None,
                0.5,
                "half of them show it",
                "below",
                num_units=stored.num_texts,
            ),
            Conclusion(
                "of all, attention to the encoder can least do with one head in some layer",
                "13.6 BLEU are lost in the last layer, elsewhere at most 1.6",
                min(alone["cross-attention"]),
                None,
                min(others),
                "the worst layer of the others",
                "below",
                num_units=stored.num_texts,
            ),
        ]

    def tables(self, stored: Stored) -> list[Shown]:
        whole = f"{stored.of_all(WHOLE)['value']:.1f}"
        rows: list[dict[str, object]] = []
        for part in PARTS:
            own = [f for f in stored.findings if f["metric"] == f"{WITHOUT}: {part}"]
            for layer in sorted({f["layer_from_1"] for f in own}):
                cells = {str(f["head_from_1"]): _cell(f) for f in own if f["layer_from_1"] == layer}
                rows.append({"part": part, "layer": layer, **cells})
        heads = {key: f"head {key}" for key in rows[0] if key.isdigit()}
        alone = {
            (part, f["layer_from_1"]): _cell(f)
            for part in PARTS
            for f in stored.findings
            if f["metric"] == f"{ALONE}: {part}"
        }
        layers = sorted({layer for _, layer in alone})
        note = f"BLEU less that of all heads, which is {whole} (* where it differs)"
        return [
            Shown(f"{note}, without one head:", {"part": "", "layer": "layer", **heads}, rows),
            Shown(
                f"{note}, with one head alone in a layer:",
                {"layer": "layer", **{part: part for part in PARTS}},
                [
                    {"layer": layer, **{part: alone.get((part, layer)) for part in PARTS}}
                    for layer in layers
                ],
            ),
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        grids = figure.subplots(1, len(PARTS) + 1)
        found = {part: stored.grid(f"{WITHOUT}: {part}") for part in PARTS}
        most = max(float(np.abs(own).max()) for own in found.values())
        for axes, (part, own) in zip(grids[:-1], found.items(), strict=True):
            axes.imshow(own, cmap="RdBu", vmin=-most, vmax=most)
            axes.set_title(f"without a head: {part}", fontsize=8)
            axes.set_xlabel("head")
            axes.set_ylabel("layer")
        figure.colorbar(grids[0].images[0], ax=grids[:-1], label="BLEU")
        for part in PARTS:
            own = [f for f in stored.findings if f["metric"] == f"{ALONE}: {part}"]
            places, values = ([f[name] for f in own] for name in ("layer_from_1", "value"))
            grids[-1].plot(places, values, marker="o", label=part)
        grids[-1].axhline(0, linestyle=":", color="grey")
        grids[-1].legend(fontsize=8)
        grids[-1].set_xlabel("layer with one head")
        grids[-1].set_ylabel("BLEU, less that of all")


def _cell(finding: Mapping[str, Any]) -> str:
    """A difference with a star where it is one: adjusted for all heads, or by its interval."""
    low, high = finding["interval"]
    differs = finding["adjusted"] < 0.05 if "adjusted" in finding else low > 0 or high < 0
    return f"{finding['value']:+.1f}{'*' * differs}"


@dataclass(frozen=True)
class HeadsOf:
    """The heads of one of ``PARTS``."""

    subject: Subject
    part: str

    @property
    def shape(self) -> tuple[int, int]:
        """Layers, and heads of each."""
        decoder = self.subject.text_model.model.decoder
        assert decoder is not None, "a model that translates has a decoder"
        of = self.subject.encoder if self.part == "encoder" else decoder
        return of.running, of.heads

    def gated(self, at: tuple[int, ...], keep: bool) -> AbstractContextManager[None]:
        """Take a head away, or ``keep`` it alone in its layer."""
        gate = torch.full((self.shape[1],), 0.0 if keep else 1.0)
        gate[at[1]] = 1.0 - gate[at[1]]
        own = gate.to(self.subject.text_model.model.embedding)[:, None, None]
        return self.subject.encoder.gate({PARTS[self.part].format(at[0]): own})

    def counted(self, translating: Translating, at: tuple[int, ...], keep: bool) -> Counts:
        """The counts (N, ...) of translations then."""
        with self.gated(at, keep):
            return translating.counted()


def _of_all(whole: Counts, seed: int) -> Finding:
    return Finding.over_texts(WHOLE, of_sums(bleu, whole, seed=seed)[0])


def _without(
    part: str, shape: tuple[int, int], without: Counts, whole: Counts, seed: int
) -> list[Finding]:
    """Of every head, tested for all of them at once."""
    found = [of_sums(bleu, own, whole, seed=seed) for own in without]
    adjusted = benjamini_hochberg([chance for _, chance in found])
    baseline = Baseline("BLEU of all", float(bleu(whole.sum(0))))
    return [
        replace(
            Finding.over_texts(f"{WITHOUT}: {part}", lead, at[0], at[1], baseline),
            chance=chance,
            adjusted=float(of_family),
            family=len(found),
        )
        for at, (lead, chance), of_family in zip(np.ndindex(shape), found, adjusted, strict=True)
    ]


def _alone(
    part: str, shape: tuple[int, int], alone: Counts, whole: Counts, seed: int
) -> list[Finding]:
    """Of the best head of every layer."""
    choosing, judging = halves(len(whole), seed)
    scores = bleu(alone[:, choosing].sum(1)).reshape(shape)
    baseline = Baseline("BLEU of all", float(bleu(whole[judging].sum(0))))
    findings: list[Finding] = []
    for layer, head in enumerate(scores.argmax(1)):
        own = alone[layer * shape[1] + head]
        lead, chance = of_sums(bleu, own[judging], whole[judging], seed=seed)
        one = Finding.over_texts(f"{ALONE}: {part}", lead, layer, int(head), baseline)
        findings.append(replace(one, chance=chance, family=shape[0]))
    return findings
