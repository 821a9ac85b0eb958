"""What a rule hides reaches nobody: for every recipe, rule and kernel, with memory and without.

The gradient of what a place ends with is exactly 0 at every place that it may not know of, through
all blocks; where a mixer sees all that it may, it is 0 nowhere else.
"""

from collections.abc import Generator
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.kernels.attention import KERNELS
from bertwright.encoder.locality import rule_at
from bertwright.encoder.memory import Memory
from bertwright.encoder.mixers import AttentionChoice, FixedPatterns, LstmChoice
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import (
    Bidirectional,
    Causal,
    Global,
    InOrder,
    RandomBlocks,
    Reversed,
    SameDocument,
    Visibility,
    Window,
    Windows,
    is_read_on,
    tiles,
)
from bertwright.model import Model
from recipes_at_toy_size import SYSTEMS, VOCABULARY, published, toy

LENGTH = 16

RULES: dict[str, Visibility | None] = {
    "own": None,
    "all": Bidirectional(),
    "causal": Causal(),
    "documents": SameDocument(),
    "causal documents": Causal() & SameDocument(),
    "reversed": Reversed(),
    "order": InOrder(),
    "window": Window(size=2),
    "windows": Causal() & Windows(sizes=(2, 1), dilations=(1, 3), dilated_heads=1),
    "sparse": Window(size=1, block=2) | Global(last=1) | RandomBlocks(number=1, block=2),
}

PLAIN = Coordinates(torch.arange(LENGTH)[None])


def _padded() -> Coordinates:
    """Rows of two documents and padding behind, of padding in front, and of nothing else."""
    document = torch.full((3, LENGTH), -1)
    document[0, :6], document[0, 6:13], document[1, 5:] = 0, 1, 0
    position = torch.zeros_like(document)
    position[0, :6], position[0, 6:13] = torch.arange(6), torch.arange(7)
    position[1, 5:] = torch.arange(LENGTH - 5)
    return Coordinates(torch.arange(LENGTH)[None], position, document=document)


def _asking() -> Coordinates:
    """A row whose last places ask for what stands at others; the first of them sees nothing."""
    generator = torch.Generator().manual_seed(4)
    order, where = torch.randperm(LENGTH - 4, generator=generator), torch.arange(3, 7)
    where[0] = order.argmin()
    asking = torch.arange(LENGTH) >= LENGTH - 4
    position = torch.cat((torch.arange(LENGTH - 4), where))
    return Coordinates(
        torch.arange(LENGTH)[None],
        position[None],
        order=torch.cat((order, order[where]))[None],
        asking=asking[None],
    )


LAYOUTS = {"plain": PLAIN, "padded": _padded(), "asking": _asking()}


def kernels_of(system: str) -> list[str]:
    """Those that can compute what a recipe asks for; a mixer without a choice has one."""
    encoder = published(system).encoder
    if isinstance(encoder.mixer, LstmChoice):
        return ["explicit", "auto"]
    if not isinstance(encoder.mixer, AttentionChoice | FixedPatterns):
        return [""]
    adds = encoder.positions.by_distance or isinstance(encoder.mixer, FixedPatterns)
    able = (k for k in KERNELS.values() if "cpu" in k.devices)
    return [k.name for k in able if k.bias or not adds]


def keeps(system: str, rule: Visibility | None) -> bool:
    """Whether a recipe has another rule of its own, and a mixer that can keep this one."""
    encoder = published(system).encoder
    if rule is None or rule == encoder.visibility:
        return rule is None
    if encoder.mixer.recurrent:
        return is_read_on(rule)
    return encoder.mixer.any_rule or isinstance(rule, Bidirectional | Causal)


@cache
def built(system: str, kernel: str) -> Model:
    # No recipe asks for what is compiled: the automatic choice takes it where it may.
    fuses = kernel in KERNELS and KERNELS[kernel].compiled
    named = [f"encoder.mixer.kernel={kernel}"] if kernel and not fuses else []
    model = Model.build(toy(system, *named), VOCABULARY)
    if fuses:
        model.encoder.fuse_attention()
    return model.requires_grad_(False)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    monkeypatch.setattr(tiles, "TILE", 4)
    tiles._of_plain_rows.cache_clear()
    yield
    tiles._of_plain_rows.cache_clear()


# Recipes that have an encoder in common are one case.
DISTINCT = {published(system).encoder.model_dump_json(): system for system in SYSTEMS}

CASES = [
    (system, kernel, name)
    for system in DISTINCT.values()
    for kernel in kernels_of(system)
    for name, rule in RULES.items()
    if keeps(system, rule)
]


@pytest.mark.parametrize(("system", "kernel", "name"), CASES)
def test_nothing_passes_where_the_rule_says_no(system: str, kernel: str, name: str) -> None:
    model = built(system, kernel)
    rule = model.encoder.rule if (own := RULES[name]) is None else own
    for layout, coordinates in LAYOUTS.items():
        if (layout == "asking") == (name == "order"):
            for half, of_half in halves(model, rule):
                found = influence(model, rule, coordinates, half)
                check(model, found.of_row, reachable(model, of_half, coordinates)[1], coordinates)


@cache
def memory_of(system: str) -> tuple[int, ...]:
    """The documents of what is remembered: first nothing, then text; none where that cannot be."""
    encoder = published(system).encoder
    memory = (0,) if encoder.mixer.recurrent else (-1, -1, 0, 0)
    try:
        EncoderChoice.model_validate({**encoder.model_dump(mode="json"), "memory": len(memory)})
    except ValidationError:
        return ()
    return memory


REMEMBERING = [
    (system, kernel, name)
    for system, kernel, name in CASES
    if memory_of(system) and kernel != "tiled" and name != "sparse"
]


@pytest.mark.parametrize(("system", "kernel", "name"), REMEMBERING)
def test_nothing_is_remembered_that_the_rule_hides(system: str, kernel: str, name: str) -> None:
    model = built(system, kernel)
    rule = model.encoder.rule if (own := RULES[name]) is None else own
    memory = torch.tensor(memory_of(system))
    for layout, coordinates in LAYOUTS.items():
        if (layout == "asking") == (name == "order"):
            ((whole_state, rule_kept),) = halves(model, rule)
            found = influence(model, rule, coordinates, whole_state, memory)
            of_memory, of_row = reachable(model, rule_kept, coordinates, memory)
            check(model, found.of_row, of_row, coordinates)
            check(model, found.of_memory, of_memory, coordinates)


@dataclass
class Influence:
    """What moves what a place ends with: (rows, L, L) bool of the row, and (blocks, rows, L, M) of
    what each block remembers."""

    of_row: Tensor
    of_memory: Tensor


def influence(
    model: Model,
    rule: Visibility,
    coordinates: Coordinates,
    half: slice,
    memory: Tensor | None = None,
) -> Influence:
    """By gradients: every row stands there ``LENGTH`` times, each asked for another place."""
    rows = coordinates.num_rows
    each = coordinates.each(
        lambda own: own if own is coordinates.place else own.repeat_interleave(LENGTH, 0)
    )
    generator = torch.Generator().manual_seed(2)
    pieces = torch.randint(5, VOCABULARY, (rows, LENGTH), generator=generator)
    pieces = pieces.repeat_interleave(LENGTH, 0)
    kept = None if memory is None else remembered(model, pieces, rule, memory)
    entered: list[Tensor] = []

    def enter(x: Tensor) -> Tensor:
        entered.append(x.detach().requires_grad_())
        return entered[-1]

    with model.encoder.replace("embeddings.output", enter):
        states = model.encoder(pieces, each, rule, memory=kept)
    assert states.isfinite().all()
    place = torch.arange(LENGTH).repeat(rows)
    weight = torch.randn(states.shape[-1], generator=generator)[half]
    asked = (states[torch.arange(len(place)), place][:, half] @ weight).sum()
    leaves = [*entered, *(kept.states.values() if kept is not None else [])]
    gradients = torch.autograd.grad(asked, leaves, materialize_grads=True)
    moved = [(g.abs().sum(-1) != 0).unflatten(0, (rows, LENGTH)) for g in gradients]
    return Influence(moved[0], torch.stack(moved[1:]) if moved[1:] else moved[0][:0])


def remembered(model: Model, pieces: Tensor, rule: Visibility, document: Tensor) -> Memory:
    """What rows of other text leave, as leaves of the graph."""
    kept = Memory.empty(len(document), pieces)
    with torch.no_grad():
        model.encoder((pieces + 7) % VOCABULARY, rule=rule, memory=kept)
    states = kept.following(Coordinates.plain(pieces)).states
    return Memory(
        {block: state.clone().requires_grad_() for block, state in states.items()},
        document.expand(len(pieces), -1),
    )


def reachable(
    model: Model, rule: Visibility, coordinates: Coordinates, memory: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """From where anything may come to each place by the rule: (blocks, rows, L, M) of what each
    block remembers, and (rows, L, L) of the row."""
    rows, keys = coordinates.num_rows, coordinates
    if memory is not None:
        keys = Memory({}, memory.expand(rows, -1)).before(coordinates)
    reached = torch.eye(LENGTH, dtype=torch.bool).expand(rows, -1, -1)
    itself, of_memory = reached, list[Tensor]()
    for block, order in reversed([*enumerate(model.recipe.encoder.depth.orders())]):
        if "s" not in order:
            continue
        own = rule_at(block, rule, model.encoder.local)
        seen = own.visible(coordinates.queries(), keys.keys()).expand(rows, -1, -1)
        if keys.document is not None:
            seen = seen & (keys.document >= 0)[:, None]
        before = seen.shape[-1] - LENGTH
        of_memory.append(_through(reached, seen[..., :before]))
        reached = _through(reached, seen[..., before:] | itself)
    return torch.stack(of_memory[::-1]), reached


def _through(later: Tensor, earlier: Tensor) -> Tensor:
    return later.float() @ earlier.float() > 0


def halves(model: Model, rule: Visibility) -> list[tuple[slice, Visibility]]:
    """The parts of a state, and what each may know of: of a mixer that reads, one for each way."""
    if not model.encoder.ways:
        return [(slice(None), rule)]
    width = model.recipe.encoder.part_width
    of_way = {"forward": Causal(), "backward": Reversed()}
    return [
        (slice(width * number, width * (number + 1)), rule & of_way[way])
        for number, way in enumerate(model.encoder.ways)
    ]


def check(model: Model, found: Tensor, allowed: Tensor, coordinates: Coordinates) -> None:
    """Nothing is found that is not allowed; at places of text nothing less either."""
    assert not (found & ~allowed).any()
    mixer = model.recipe.encoder.mixer
    sees_less = hasattr(mixer, "patterns") or hasattr(mixer, "buckets")
    padding = coordinates.document is not None and (coordinates.document < 0)[..., None]
    assert sees_less or (found | padding).equal(allowed | padding)
