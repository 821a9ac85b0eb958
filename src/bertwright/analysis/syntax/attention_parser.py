"""A parser that is made of attention (Clark et al. 2019, section 5)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.conclusions import Conclusion, concluded
from bertwright.analysis.findings import Finding, Found, Stored
from bertwright.analysis.listening import Heard, listen
from bertwright.analysis.texts import ReadText, lacks_trees
from bertwright.randomness import key
from bertwright.significance import halves, of_difference, of_ratio
from bertwright.tasks.formats.treebank import Tree

FARTHEST = 6
"""Words from a dependent; all that stand farther are one distance, to either side."""

AT_ONCE = 20
"""Sentences of a step."""


class AttentionParser(Listening):
    """What a word depends on is guessed by a sum of what all heads see from it and to it, with a
    weight for each; whether it is the root, by what they see of the special pieces. The weights are
    learned on half of the sentences, and judged on the other half, without punctuation (UAS).
    Beside it stand distances alone, learned likewise, the model with weights as they are drawn, and
    the next word. The first ``most`` sentences are read; words themselves are not looked at."""

    kind: Literal["attention-parser"] = "attention-parser"
    most: int = Field(default=400, ge=2)
    epochs: int = Field(default=30, ge=1)
    rate: float = Field(default=0.1, gt=0)
    number = "B7"
    group = "syntax"
    question = "Do all heads together tell what words depend on?"
    source = "Clark et al. 2019"
    sites = ("blocks.*.attention.weights",)

    def lacks(self, case: Case) -> str | None:
        return lacks_trees(case.texts) or self._lacks_words(case) or super().lacks(case)

    def listener(self, case: Case) -> "ParserHeard":
        return ParserHeard(case, self)

    def conclusions(self, stored: Stored) -> list[Conclusion]:
        return [
            concluded(
                "attention tells more than distance does",
                "61 % to 58 %, which had the vectors of words, too",
                stored.of_all("UAS, attention less distances"),
                0.0,
                "alike",
            ),
            concluded(
                "attention tells more than that of an untrained model does",
                "77 % to 30 %, both with the vectors of words",
                stored.of_all("UAS, attention less untrained"),
                0.0,
                "alike",
            ),
        ]

    def _lacks_words(self, case: Case) -> str | None:
        trees = [tree for text in case.texts[: self.most] if (tree := whole_tree(text))]
        if len(trees) < 4:
            return "it needs four sentences that are read whole: two to learn from, two to judge"
        for half in halves(len(trees), case.seed):
            if all(tag == "PUNCT" for n in half for tag in trees[n].tags):
                return "half of the sentences are punctuation alone: give more sentences"
        return None

    def draw(self, stored: Stored, figure: Figure) -> None:
        axes = figure.subplots()
        bars = [own for own in stored.findings if "less" not in own["metric"]]
        axes.bar([own["metric"] for own in bars], [own["value"] for own in bars])
        axes.set_ylabel("UAS")


@dataclass(frozen=True)
class Seen:
    """Of a sentence of W words what is known of each word j and each i that it may depend on.

    Attributes:
        pairs: (W, W, F), first j, then i; of attention first what j looks at, then what looks at j.
        roots: (W, G), of j as the root.
        heads: (W,) what j depends on, -1 for the root.
        counted: (W,) bool, those that are judged.
    """

    pairs: Tensor
    roots: Tensor
    heads: Tensor
    counted: Tensor

    def scores(self, weights: tuple[Tensor, Tensor]) -> Tensor:
        """(W, W + 1): the root is last; no word depends on itself."""
        itself = torch.eye(len(self.pairs), dtype=torch.bool)
        pairs = (self.pairs @ weights[0]).masked_fill(itself, -torch.inf)
        return torch.cat((pairs, (self.roots @ weights[1])[:, None]), 1)

    @property
    def target(self) -> Tensor:
        """The columns of the scores that are right."""
        return torch.where(self.heads < 0, len(self.heads), self.heads)


class ParserHeard:
    """What all heads see between the words of every sentence."""

    sites = AttentionParser.sites

    def __init__(self, case: Case, choice: AttentionParser) -> None:
        self.case, self.choice = case, choice
        self.seen: dict[int, Seen] = {}

    def hear(self, heard: Heard) -> None:
        """Keep what is seen in a batch."""
        layers = [heard.attention(layer) for layer in range(self.case.subject.num_layers)]
        special = [heard.marked(mark) for mark in ("opening", "separator")]
        for row, number in enumerate(heard.numbers):
            text = heard.texts[row]
            if number >= self.choice.most or (tree := whole_tree(text)) is None:
                continue
            own = torch.cat([layer[row] for layer in layers]).float()
            between = heard.between_words(row, own)
            places = heard.from_words(row, own)
            at = [mark[row, : len(text)].to(places) for mark in special]
            self.seen[number] = Seen(
                torch.cat((between, between.mT)).permute(1, 2, 0).cpu(),
                torch.cat([places @ mark for mark in at]).T.cpu(),
                torch.tensor(tree.heads),
                torch.tensor([tag != "PUNCT" for tag in tree.tags]),
            )

    def found(self) -> Found:
        """Learned and judged, beside the baselines."""
        case, choice = self.case, self.choice
        untrained = ParserHeard(Case(case.subject.untrained(case.seed), case.texts), choice)
        listen(untrained.case.subject, case.texts[: choice.most], [untrained])
        own = [self.seen[number] for number in sorted(self.seen)]
        ways = {
            "attention": own,
            "untrained": [untrained.seen[number] for number in sorted(untrained.seen)],
            "distances": [by_distance(sentence) for sentence in own],
        }
        choosing, judging = halves(len(own), case.seed)
        total = np.array([int(own[n].counted.sum()) for n in judging])
        right = {"next word": np.array([_next_words(own[n]) for n in judging])}
        arrays: dict[str, NDArray[np.float32]] = {}
        for name, sentences in ways.items():
            weights = learned([sentences[n] for n in choosing], choice, case.seed)
            right[name] = np.array([num_right(sentences[n], weights) for n in judging])
            if name == "attention":
                arrays["weights"] = weights[0].numpy()
        findings = [
            Finding.over_texts(name, of_ratio(hits, total, seed=case.seed))
            for name, hits in right.items()
        ]
        for other in ("distances", "untrained"):
            lead = of_difference((right["attention"], total), (right[other], total), seed=case.seed)
            findings.append(Finding.over_texts(f"UAS, attention less {other}", lead))
        return Found(findings, arrays)


def whole_tree(text: ReadText) -> Tree | None:
    """The tree of a text whose words are all read."""
    tree = text.source
    return tree if isinstance(tree, Tree) and len(text.words) == len(tree.words) else None


def by_distance(sentence: Seen) -> Seen:
    """The same sentence, of which nothing but distances is known."""
    place = torch.arange(len(sentence.heads))
    distance = (place - place[:, None]).clamp(-FARTHEST, FARTHEST) + FARTHEST
    pairs = torch.nn.functional.one_hot(distance, 2 * FARTHEST + 1).float()
    return Seen(pairs, torch.ones(len(place), 1), sentence.heads, sentence.counted)


def learned(sentences: Sequence[Seen], choice: AttentionParser, seed: int) -> tuple[Tensor, Tensor]:
    """Weights of pairs (F,) and of roots (G,) by which what words depend on is likely."""
    generator = torch.Generator().manual_seed(key(seed, "attention parser") >> 1)
    sizes = (sentences[0].pairs.shape[-1], sentences[0].roots.shape[-1])
    weights = tuple(torch.zeros(size, requires_grad=True) for size in sizes)
    pairs, roots = weights
    update = torch.optim.Adam(weights, choice.rate)
    steps = choice.epochs * -(-len(sentences) // AT_ONCE)
    slower = torch.optim.lr_scheduler.LinearLR(update, 1.0, 0.0, steps)
    for _ in range(choice.epochs):
        order = torch.randperm(len(sentences), generator=generator).tolist()
        for start in range(0, len(order), AT_ONCE):
            some = [sentences[n] for n in order[start : start + AT_ONCE]]
            update.zero_grad()
            _loss(some, (pairs, roots)).backward()
            update.step()
            slower.step()
    return pairs.detach(), roots.detach()


def _loss(sentences: Sequence[Seen], weights: tuple[Tensor, Tensor]) -> Tensor:
    """Of all counted words at once: threads of many small losses wait for one another."""
    widest = max(len(each.heads) for each in sentences)
    scores = [
        torch.nn.functional.pad(
            each.scores(weights)[each.counted], (0, widest - len(each.heads)), value=-torch.inf
        )
        for each in sentences
    ]
    target = torch.cat([each.target[each.counted] for each in sentences])
    return torch.nn.functional.cross_entropy(torch.cat(scores), target)


def num_right(sentence: Seen, weights: tuple[Tensor, Tensor]) -> int:
    """How many counted words have their head guessed."""
    hits = sentence.scores(weights).argmax(1) == sentence.target
    return int((hits & sentence.counted).sum())


def _next_words(sentence: Seen) -> int:
    hits = sentence.heads == torch.arange(1, len(sentence.heads) + 1)
    return int((hits & sentence.counted).sum())
