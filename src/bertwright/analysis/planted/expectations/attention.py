"""Heads that look where they are told."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from bertwright.analysis.analysis import Analysis, Case
from bertwright.analysis.asking import Asking
from bertwright.analysis.attention.clusters import HeadClusters
from bertwright.analysis.attention.entropy import AttentionEntropy
from bertwright.analysis.attention.explaining import EVEN as EVEN_ROWS
from bertwright.analysis.attention.explaining import (
    PERMUTED,
    WITHOUT_ANY,
    WITHOUT_TOP,
    AttentionExplains,
    permuted,
    without,
)
from bertwright.analysis.attention.patterns import PATTERNS, AttentionPatterns
from bertwright.analysis.attention.rollout import AttentionRollout, rollout
from bertwright.analysis.attention.shares import TARGETS, AttentionShares
from bertwright.analysis.attention.slopes import slopes
from bertwright.analysis.findings import Found
from bertwright.analysis.planted.attention import EVEN, Heads, Pointer, pointing
from bertwright.analysis.planted.expecting import Expected, above, below, equal, same
from bertwright.analysis.planted.models import small_case

HEADS: Heads = {0: ("opening", "end", "self", "even"), 1: ("previous", "next", "even", "opening")}
"""Of the small model."""


def shares() -> Iterator[Expected]:
    """What each head looks at, and that an even one is its own baseline."""
    own = small_case()
    with pointing(own.subject, HEADS):
        found = AttentionShares().run(own)
    lengths = np.array([len(text) for text in own.texts])
    told = {target: by_head(found, target) for target in TARGETS}
    yield equal("at the opening", told["opening"][0, 0], 1)
    yield equal("at the end", told["separator"][0, 1], 1)
    yield equal("at itself", told["self"][0, 2], 1)
    # The first place has nothing before it, the last nothing behind it: they look at themselves.
    yield equal("before", told["previous"][1, 0], np.mean((lengths - 1) / lengths))
    yield equal("behind", told["next"][1, 1], np.mean((lengths - 1) / lengths))
    yield equal("evenly", told["opening"][0, 3], np.mean(1 / lengths))
    yield from _even_heads(AttentionShares())


def entropy() -> Iterator[Expected]:
    """That of an even row is the logarithm of its length, that of a row that points is nothing."""
    own = small_case()
    with pointing(own.subject, HEADS):
        found = by_head(AttentionEntropy().run(own), "entropy")
    lengths = np.array([len(text) for text in own.texts])
    yield equal("of an even head", found[0, 3], np.mean(np.log(lengths)), 1e-5)
    yield below("of a head that points", abs(found[0, 2]), 0.01)
    yield below("of any", found, np.log(lengths.max()) + 1e-6)
    yield from _even_heads(AttentionEntropy())


def patterns() -> Iterator[Expected]:
    """Every head is of the class that it was made for."""
    own = small_case()
    with pointing(own.subject, HEADS):
        found = AttentionPatterns().run(own).arrays["shares"]
    told = [[PATTERNS[n] for n in row] for row in found.argmax(-1)]
    wanted = [
        ["vertical", "vertical", "diagonal", "heterogeneous"],
        ["diagonal", "diagonal", "heterogeneous", "vertical"],
    ]
    yield same("classes", told, wanted)
    yield equal("sums of the shares", found.sum(-1), 1)


def clusters() -> Iterator[Expected]:
    """Heads that look alike are nowhere apart, those that share nothing as far as can be."""
    own = small_case()
    alike: Heads = {
        0: ("opening", "opening", "even", "self"),
        1: ("opening", "even", "self", "end"),
    }
    with pointing(own.subject, alike):
        found = HeadClusters(most=3).run(own)
    distances = found.arrays["distances"]
    twins = [distances[pair] for pair in ((0, 1), (0, 4), (2, 5), (3, 6))]
    yield equal("symmetry", distances, distances.T)
    yield equal("of heads that look alike", twins, 0)
    yield below("of any two", distances, np.log(2) + 1e-9)
    # A place that looks at itself and one that looks at the first share the first place alone.
    lengths = [len(text) for text in own.texts[:3]]
    wanted = np.log(2) * (sum(lengths) - len(lengths)) / sum(lengths)
    yield equal("of those that share next to nothing", distances[0, 3], wanted)


def rolled_out() -> Iterator[Expected]:
    """The product of what layers mix."""
    turned = torch.roll(torch.eye(5), 1, 0)[None]
    for number, found in enumerate(rollout([turned] * 3), start=1):
        wanted = torch.linalg.matrix_power((turned[0] + torch.eye(5)) / 2, number)
        yield equal(f"of {number} layers that turn", found[0], wanted)
    own = small_case()
    itself: Sequence[Pointer] = ("self",) * 4
    opening: Sequence[Pointer] = ("opening",) * 4
    with pointing(own.subject, {0: itself, 1: opening}):
        told = AttentionRollout().run(own).arrays["shares"]
    lengths = np.array([len(text) for text in own.texts])
    wanted = np.array([1, np.mean(1 / lengths), np.mean(1 / lengths)])
    yield equal("of a layer that looks at itself", told[0], wanted)
    yield equal("at the opening behind it", told[1, 1], 0.5 + np.mean(0.5 / lengths))


def explaining() -> Iterator[Expected]:
    """Attention that nobody reads explains nothing; what is changed is what should be."""
    own = small_case()
    with torch.no_grad():
        for name, parameter in own.subject.encoder.blocks.named_parameters():
            if "attention.output" in name:
                parameter.zero_()
    found = AttentionExplains(draws=2, steps=3).run(own)
    for name in (PERMUTED, EVEN_ROWS, WITHOUT_TOP, WITHOUT_ANY):
        yield equal(f"answers moved, {name}", found.arrays[name], 0, 1e-12)
    yield above("attention that could be moved", found.arrays["adversary"][:, 0], 1e-4)
    weights = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.0, 0.1, 0.2, 0.7]], dtype=torch.float64)
    moved = permuted(torch.Generator().manual_seed(0))(weights)
    yield equal("sorted rows", moved.sort(-1)[0], weights.sort(-1)[0], 0)
    yield equal("places that are not looked at", moved[weights == 0], 0, 0)
    yield equal("without a place", without(0)(weights)[0], [0, 0.6, 0.4, 0])


def sloping() -> Iterator[Expected]:
    """Heads that write nothing have no slope; others have that of a central difference."""
    own = small_case()
    asking, step, at = Asking(own.subject, own.texts), 1e-5, (1, 2)
    with torch.no_grad():
        for block in own.subject.encoder.blocks:
            weight = block.get_submodule("sublayers.attention.output").weight
            assert isinstance(weight, torch.Tensor)
            weight.view(len(weight), own.subject.num_heads, -1)[:, 0] = 0
    found = slopes(asking)
    yield equal("of heads that write nothing", found[:, :, 0], 0, 0)
    yield above("of others", found[:, :, 1:], 1e-12)
    one = Asking(own.subject, own.texts[:1])
    length = len(own.texts[0])
    sizes: list[float] = []
    for row in range(length):
        moved: list[float] = []
        for sign in (1, -1):

            def change(
                weights: torch.Tensor, row: int = row, by: float = sign * step
            ) -> torch.Tensor:
                changed = weights.clone()
                changed[:, at[1], row, 0] += by
                return changed

            with own.subject.encoder.replace(f"blocks.{at[0]}.attention.weights", change):
                moved.append(float(one.asked().loss.sum()))
        sizes.append(abs(moved[0] - moved[1]) / (2 * step))
    yield equal(
        "against central differences", slopes(one)[0, at[0], at[1], 0], np.mean(sizes), 1e-7
    )


def by_head(found: Found, metric: str) -> np.ndarray:
    """The values of a metric (layers, heads) of the small model."""
    of = {(f.layer, f.head): f.value for f in found.findings if f.metric == metric}
    return np.array([[of[layer, head] for head in range(4)] for layer in range(2)])


def _even_heads(analysis: Analysis) -> Iterator[Expected]:
    for system in ("bert", "gpt-2"):
        own: Case = small_case(system)
        with pointing(own.subject, EVEN):
            found = [f for f in analysis.run(own).findings if f.baseline]
        leads = [f.value - f.baseline.value for f in found if f.baseline]
        yield above("findings that have a baseline", len(leads), 1)
        yield equal(f"even heads of {system} against their baseline", leads, 0)
