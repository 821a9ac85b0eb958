"""Whether trees stand in attention or in states: what was asked of either, in one way (Clark et al.
2019; Hewitt and Manning 2019)."""

from dataclasses import replace
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from pydantic import Field

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Baseline, Finding, Found, Stored
from bertwright.analysis.probing.structural import Sentence, StructuralProbe
from bertwright.analysis.syntax.attention_parser import AttentionParser
from bertwright.analysis.syntax.ways_to_trees import TREES, Counts, Shown, Told, parsed
from bertwright.analysis.texts import lacks_trees
from bertwright.analysis.word_states import SITES
from bertwright.significance import holm, of_difference, of_ratio, sign_flips

LEAST = 8
"""Sentences, of which half are learned from."""

RATE = 1e-2
"""Of learning the map, at first: ten times what was published, by which maps of few sentences end
too early. It falls wherever a round gains nothing."""

COMPARED = (
    ("all heads weighed", "one head"),
    ("states", "one head"),
    ("states", "all heads weighed"),
)
"""Ways to trees that are held against each other."""


class AttentionOrStates(Analysis):
    """How many edges of the trees of sentences are found (UUAS, without punctuation) by the links
    of one head, from each word to where it looks most or to what looks at it most; by the tree of
    most attention, either way, of one head and of the mean of all heads; by that of the sum of all
    heads with learned weights; and by the tree of the shortest distances behind a learned map of
    states. Head, weights, map and layer are chosen or learned on half of the sentences and judged
    on the other half. Beside each stands the same of the model with weights as they are drawn, and
    beside all the chain in which every word hangs on its neighbour. A map has more to learn than
    weights have: of a few hundred sentences states seem to tell less than they do of a thousand.
    The first ``most`` are read; ``rank`` is that of the map, ``epochs`` are those of all that is
    learned."""

    kind: Literal["attention-or-states"] = "attention-or-states"
    most: int = Field(default=1000, ge=LEAST)
    rank: int = Field(default=64, ge=1)
    epochs: int = Field(default=30, ge=1)
    number = "B26"
    group = "syntax"
    question = "Do trees stand in attention, or in states?"
    source = "Clark et al. 2019; Hewitt and Manning 2019"
    sites = ("blocks.*.attention.weights", *SITES)

    def lacks(self, case: Case) -> str | None:
        lacks = lacks_trees(case.texts)
        if lacks is None and len(parsed(case.texts, self.most)) < LEAST:
            return f"it needs {LEAST} sentences of two words at least, with their trees"
        return lacks or super().lacks(case)

    def run(self, case: Case) -> Found:
        texts = parsed(case.texts, self.most)
        own, judged = self._told(replace(case, texts=texts))
        drawn, _ = self._told(Case(case.subject.untrained(case.seed), texts, case.seed))
        untrained = {name: told.right for name, told in drawn.items()}
        total = np.array([len(sentence.edges) for sentence in judged])
        chain = np.array([sentence.edges_found(sentence.along) for sentence in judged])

        findings = [Finding.over_texts("UUAS, chain", of_ratio(chain, total, seed=case.seed))]
        for name, told in own.items():
            baseline = Baseline("untrained", float(untrained[name].sum() / total.sum()))
            share = of_ratio(told.right, total, seed=case.seed)
            finding = Finding.over_texts(f"UUAS, {name}", share, told.layer, told.head, baseline)
            findings.append(replace(finding, note=told.note))
            share = of_ratio(untrained[name], total, seed=case.seed)
            findings.append(Finding.over_texts(f"UUAS, {name}, untrained", share))
        return Found(
            [*findings, *_leads(own, untrained, chain, total, case.seed)],
            {
                "total": total,
                "chain": chain,
                "trained": np.stack([told.right for told in own.values()]),
                "untrained": np.stack(list(untrained.values())),
            },
        )

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        claims = {
            "all heads weighed less one head": (
                "all heads together tell more of a tree than the best one does",
                "61 % to 34.5 % of BERT-base, of directed edges",
            ),
            "states less one head": (
                "states tell more of a tree than the best head does",
                "79.8 % of edges by states, 34.5 % of directed ones by a head of BERT-base",
            ),
            "states less all heads weighed": (
                "states tell more of a tree than all heads together do",
                "79.8 % of edges by states, 61 % of directed ones by heads of BERT-base",
            ),
            "all heads weighed less chain": (
                "all heads together tell more of a tree than the chain of neighbours does",
                "61 % to 26 % of BERT-base, of directed edges",
            ),
            "states less untrained": (
                "states tell more of a tree than those of an untrained model do",
                "77.0 % to 59.8 % of ELMo's first layer",
            ),
        }
        return [
            concluded(*said, stored.of_all(f"UUAS, {name}"), 0.0, "alike")
            for name, said in claims.items()
        ]

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        of = {finding["metric"]: finding for finding in stored.findings}
        places = np.arange(len(TREES))
        for by, label, end in ((-0.2, "trained", ""), (0.2, "untrained", ", untrained")):
            own = [of[f"UUAS, {name}{end}"] for name in TREES]
            values = np.array([finding["value"] for finding in own])
            low, high = np.array([f.get("interval", [f["value"]] * 2) for f in own]).T
            axes.bar(places + by, values, 0.4, yerr=[values - low, high - values], label=label)
        axes.axhline(of["UUAS, chain"]["value"], linestyle=":", label="chain of neighbours")
        axes.set_xticks(places, list(TREES))
        axes.set_ylabel("UUAS")
        figure.legend(loc="outside upper center", ncols=3)

    def _told(self, case: Case) -> tuple[dict[str, Told], list[Sentence]]:
        """What every way tells of the sentences that judge, and these."""
        parser = AttentionParser(most=self.most, epochs=self.epochs)
        probe = StructuralProbe(rank=self.rank, rate=RATE, epochs=self.epochs)
        shown = Shown(case, parser, probe)
        judged = [shown.sentences[number] for number in shown.judging]
        return {name: way(shown) for name, way in TREES.items()}, judged


def _leads(
    own: dict[str, Told], untrained: dict[str, Counts], chain: Counts, total: Counts, seed: int
) -> list[Finding]:
    """How far each way is ahead of the model as it is drawn and of the chain, and some of them of
    others; with chances adjusted for all of these."""
    pairs = {f"{name} less untrained": (own[name].right, untrained[name]) for name in TREES}
    pairs |= {f"{name} less chain": (own[name].right, chain) for name in TREES}
    pairs |= {f"{one} less {two}": (own[one].right, own[two].right) for one, two in COMPARED}
    chances = [sign_flips(right - other, seed=seed) for right, other in pairs.values()]
    found: list[Finding] = []
    for n, (name, (right, other)) in enumerate(pairs.items()):
        lead = of_difference((right, total), (other, total), seed=seed)
        finding = Finding.over_texts(f"UUAS, {name}", lead)
        adjusted = float(holm(chances)[n])
        found.append(replace(finding, chance=chances[n], adjusted=adjusted, family=len(pairs)))
    return found
