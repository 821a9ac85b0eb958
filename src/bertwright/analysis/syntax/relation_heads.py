"""Heads that look from a word to what it depends on (Clark et al. 2019, section 4.2)."""

from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.conclusions import Conclusion
from bertwright.analysis.findings import Baseline, Finding, Found, Stored, span_of
from bertwright.analysis.listening import Heard
from bertwright.significance import (
    benjamini_hochberg,
    halves,
    of_difference,
    of_ratio,
    sign_flips,
)
from bertwright.tasks.formats.treebank import Tree

WAYS = ("looks at its head", "is looked at by its head")

OFFSETS = tuple(offset for offset in range(-5, 6) if offset)
"""Words from a dependent to the one that a baseline guesses."""

PUBLISHED = {"det": "94.3 % to 51.7 %", "obj": "86.8 % to 40.0 %", "mark": "50.7 % to 14.5 %"}
"""Of BERT-base on the Wall Street Journal, best head to best offset."""


class RelationHeads(Listening):
    """For each relation the head that tells best, by where it looks most, what a word depends on;
    held against the best fixed distance. Both are chosen on half of the sentences and judged on the
    other half. Relations with fewer than ``least`` words there are left out."""

    kind: Literal["relation-heads"] = "relation-heads"
    least: int = Field(default=20, ge=1)
    number = "B6"
    group = "syntax"
    question = "Do heads look from a word to what it depends on?"
    source = "Clark et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def lacks(self, case: Case) -> str | None:
        if not any(isinstance(text.source, Tree) for text in case.texts):
            return "it needs sentences with trees: give a CoNLL-U file"
        return super().lacks(case)

    def listener(self, case: Case) -> "RelationsHeard":
        return RelationsHeard(case, self.least)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        sure = [f for f in stored.findings if f["adjusted"] < 0.05 and f.get("lead", (0,))[0] > 0]
        found = [
            Conclusion(
                "for some relations a head is ahead of every distance",
                "most relations of BERT-base",
                len(sure),
                None,
                0,
                "none",
                num_units=stored.num_texts,
            )
        ]
        for own in stored.findings:
            relation = own["metric"].removeprefix("accuracy of ")
            if relation in PUBLISHED:
                found.append(
                    Conclusion(
                        f"a head finds what {relation} depends on more often than a distance does",
                        PUBLISHED[relation],
                        own["value"] - own["baseline"]["value"],
                        tuple(own["lead"]) if "lead" in own else None,
                        0.0,
                        "as often",
                        num_units=own["num_units"],
                    )
                )
        return found

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        names = [own["metric"].removeprefix("accuracy of ") for own in stored.findings]
        places = np.arange(len(names))
        axes.bar(places - 0.2, [own["value"] for own in stored.findings], 0.4, label="best head")
        axes.bar(
            places + 0.2,
            [own["baseline"]["value"] for own in stored.findings],
            0.4,
            label="best distance",
        )
        axes.set_xticks(places, names, rotation=60)
        axes.set_ylabel("accuracy")
        axes.legend()


class RelationsHeard:
    """Of every sentence and relation how many words there are, how many each head has right, in
    both ways, and each distance."""

    sites = RelationHeads.sites

    def __init__(self, case: Case, least: int) -> None:
        self.least, self.seed = least, case.seed
        trees = [t.source for t in case.texts if isinstance(t.source, Tree)]
        self.relations = sorted({r for tree in trees for r in tree.relations} - {"root", "punct"})
        number, subject = len(case.texts), case.subject
        shape = (number, subject.num_layers, subject.num_heads, len(WAYS), len(self.relations))
        self.right = np.zeros(shape, np.int16)
        self.total = np.zeros((number, len(self.relations)), np.int64)
        self.by_offset = np.zeros((number, len(OFFSETS), len(self.relations)), np.int64)

    def hear(self, heard: Heard) -> None:
        """Count in a batch."""
        weights = [heard.attention(layer) for layer in range(self.right.shape[1])]
        for row, number in enumerate(heard.numbers):
            tree = heard.texts[row].source
            if not isinstance(tree, Tree):
                continue
            size = len(heard.texts[row].words)
            asked = [
                (word, head, self.relations.index(relation))
                for word, (head, relation) in enumerate(
                    zip(tree.heads[:size], tree.relations[:size], strict=True)
                )
                if 0 <= head < size and relation in self.relations
            ]
            if not asked:
                continue
            word, head, relation = np.array(asked).T
            np.add.at(self.total[number], relation, 1)
            for place, offset in enumerate(OFFSETS):
                np.add.at(self.by_offset[number, place], relation, word + offset == head)
            for layer, own in enumerate(weights):
                guessed = guesses(heard.between_words(row, own[row]))
                hits = guessed[..., word] == head
                for way, of_way in enumerate(hits):
                    for number_of_head, of_head in enumerate(of_way):
                        into = self.right[number, layer, number_of_head, way]
                        np.add.at(into, relation, of_head)

    def found(self) -> Found:
        """The best head of each relation, chosen on one half and judged on the other."""
        choosing, judging = halves(len(self.total), self.seed)
        findings: list[Finding] = []
        chances: list[float] = []
        for number, relation in enumerate(self.relations):
            having = judging[self.total[judging, number] > 0]
            total = self.total[having, number]
            if total.sum() < self.least or not self.total[choosing, number].any():
                continue
            by_head = self.right[choosing, ..., number].sum(0, dtype=np.int64)
            layer, head, way = map(int, np.unravel_index(by_head.argmax(), by_head.shape))
            offset = int(self.by_offset[choosing, :, number].sum(0).argmax())
            right = self.right[having, layer, head, way, number].astype(np.int64)
            guessed = self.by_offset[having, offset, number]
            interval = of_ratio(right, total, seed=self.seed)
            lead = of_difference((right, total), (guessed, total), seed=self.seed)
            chances.append(sign_flips(right - guessed, seed=self.seed))
            share = Baseline(f"the word at {OFFSETS[offset]:+d}", guessed.sum() / total.sum())
            own = Finding.over_texts(f"accuracy of {relation}", interval, layer, head, share)
            findings.append(replace(own, chance=chances[-1], lead=span_of(lead), note=WAYS[way]))
        adjusted = benjamini_hochberg(chances) if chances else ()
        return Found(
            [
                replace(own, adjusted=float(value), family=len(chances))
                for own, value in zip(findings, adjusted, strict=True)
            ],
            {"right": self.right.sum(0, dtype=np.int64), "total": self.total.sum(0)},
        )


def guesses(between: Tensor) -> NDArray[np.int64]:
    """What each word depends on by attention between words (H, W, W): (2, H, W), by where it looks
    most, and by who looks at it most; never itself, and -1 where that is nobody."""
    size = between.shape[-1]
    others = between.masked_fill(torch.eye(size, dtype=torch.bool, device=between.device), 0.0)
    most = [others.max(axis) for axis in (-1, -2)]
    return torch.stack([m.indices.where(m.values > 0, -1) for m in most]).cpu().numpy()
