"""What of a recipe does not go together, in one sentence each that says what to change."""

from typing import TYPE_CHECKING

from bertwright.encoder.adaptive import Adaptive
from bertwright.encoder.mixers import AttentionChoice
from bertwright.encoder.positions import Axial, Learned, Positions
from bertwright.encoder.visibility import InOrder, is_by_halves, is_empty, is_two_sided
from bertwright.objectives import AdaptiveSoftmax, Objective, PairQuestion, Ponder
from bertwright.objectives.turns import Turn
from bertwright.schedules import Constant

if TYPE_CHECKING:
    from bertwright.recipes.schema import Recipe


def check(recipe: "Recipe") -> None:
    """Errors: ValueError for the first that does not."""
    if recipe.decoder is not None:
        recipe.decoder.of(recipe.encoder)
    if not recipe.objectives:
        return
    for number in range(len(recipe.phases)):
        _phase(recipe, number)
    _growth(recipe)
    _levels(recipe)
    _order(recipe)
    _tables(recipe)


def _order(recipe: "Recipe") -> None:
    if recipe.encoder.memory and not recipe.assembly.in_order:
        raise ValueError(
            "encoder.memory needs rows that go on from step to step: set assembly.kind=contiguous"
        )
    steady = isinstance(recipe.batch_tokens, Constant) and all(
        phase.length is None and phase.batch == 1.0 for phase in recipe.phases
    )
    decoding = any(o.decodes for o in recipe.objectives.values())
    if recipe.assembly.directions > 1 and decoding:
        raise ValueError(
            "assembly half-reversed reads rows from their end, and a decoder writes them from the "
            "beginning: choose another assembly"
        )
    if recipe.assembly.in_order and not steady:
        raise ValueError("an assembly in the order of the text needs one length and one batch")


def _growth(recipe: "Recipe") -> None:
    depths = [phase.depth for phase in recipe.phases]
    if depths != sorted(depths) or depths[-1] != 1.0:
        raise ValueError("phases: depth may only grow from phase to phase, and ends as 1")
    if depths[0] < 1.0 and len(set(recipe.encoder.widths)) > 1:
        raise ValueError("phases: blocks of different widths cannot be stacked")
    if depths[0] < 1.0 and recipe.decoder is not None:
        raise ValueError("phases: a decoder cannot be stacked: leave out depth")
    if depths[0] < 1.0 and recipe.encoder.memory:
        raise ValueError("phases: blocks that are new remember nothing: set encoder.memory to 0")
    if depths[0] < 1.0 and recipe.encoder.depth.sharing != "none":
        raise ValueError("phases: blocks that share their parameters cannot be stacked")
    if depths[0] < 1.0 and len(set(recipe.encoder.depth.orders())) > 1:
        raise ValueError("phases: blocks of different sublayers cannot be stacked")
    if depths[0] < 1.0 and recipe.encoder.norm.skips_first:
        raise ValueError(
            "phases: the first block lacks a norm that its copies would need: set "
            "encoder.norm.skip_first=false, or leave out depth"
        )
    if depths[0] < 1.0 and recipe.encoder.residual.looks_back:
        raise ValueError("phases: blocks that look back at all before them cannot be stacked")


def _levels(recipe: "Recipe") -> None:
    levels = len(recipe.encoder.depth.orders()) + 2
    for number, phase in enumerate(recipe.phases):
        if phase.trained is not None and phase.trained > levels:
            raise ValueError(f"phases.{number}.trained: there are no more than {levels} levels")
    by_level = recipe.optimiser.layer_decay < 1.0 or any(p.trained for p in recipe.phases)
    if by_level and recipe.decoder is not None:
        raise ValueError(
            "the blocks of a decoder have no levels: leave out optimiser.layer_decay and "
            "trained of phases"
        )
    if by_level and any(objective.rewrites for objective in recipe.objectives.values()):
        raise ValueError(
            "the blocks of a generator have no levels: leave out optimiser.layer_decay and "
            "trained of phases"
        )
    if by_level and recipe.encoder.depth.sharing != "none":
        raise ValueError(
            "blocks that share their parameters are one level: leave out "
            "optimiser.layer_decay and trained of phases, or set encoder.depth.sharing=none"
        )
    if by_level and recipe.phases[0].depth < 1.0:
        raise ValueError(
            "phases: levels are those of all blocks, and not all run from the beginning: leave out "
            "depth, or optimiser.layer_decay and trained of phases"
        )


def _phase(recipe: "Recipe", number: int) -> None:
    asked = recipe.objectives_of(number)
    if not asked:
        raise ValueError(f"phases.{number} asks no question: name one of its objectives")
    for turn in recipe.turns_of(number):
        _turn(recipe, number, turn)
    length = recipe.assembly_of(number).length
    _places(number, "encoder", recipe.encoder.positions, length)
    _decoding(recipe, asked)
    if recipe.decoder is not None:
        said = [o.decoded_positions(length) for o in asked.values()]
        _places(number, "decoder", recipe.decoder.of(recipe.encoder).positions, *said)
    if recipe.encoder.depth.runs_all and any(isinstance(o, Ponder) for o in asked.values()):
        raise ValueError(
            f"phases.{number}: objectives.ponder needs blocks that halt: set "
            f"encoder.depth.kind to halting, or leave it out"
        )
    tasks = recipe.encoder.embeddings.tasks
    for name, objective in asked.items():
        if objective.task is not None and objective.task >= tasks:
            raise ValueError(
                f"objectives.{name}.task is {objective.task}, and the encoder knows {tasks}, "
                f"from 0: set encoder.embeddings.tasks"
            )
        if objective.own_rows is not None and (objective.share is None or recipe.assembly.in_order):
            raise ValueError(
                f"objectives.{name} is asked of rows of its own: give it a share of the steps, and "
                f"choose an assembly that is not contiguous"
            )


def _places(number: int, part: str, positions: Positions, *lengths: int) -> None:
    """Positions that have a table have a row for every place."""
    longest = max(lengths, default=0)
    if isinstance(positions, Axial | Learned) and longest > positions.size:
        key = "size" if isinstance(positions, Learned) else "shape"
        raise ValueError(
            f"phases.{number}: a length of {longest} is more than {part}.positions.{key} "
            f"allows ({positions.size})"
        )


def _turn(recipe: "Recipe", number: int, turn: Turn) -> None:
    """What is asked together can be answered by what the places see."""
    seen = recipe.encoder.visibility & turn.visibility
    listed = list(turn.objectives.items())
    decoding = [name for name, objective in listed if objective.decodes]
    if decoding and len(listed) > 1:
        raise ValueError(
            f"objectives.{decoding[0]} rearranges the text, so that no other question can be "
            f"asked of it: ask it in a phase of its own, or give each a share of the steps"
        )
    assembly = recipe.assembly_of(number, turn.objectives.values())
    for place, (name, objective) in enumerate(listed):
        is_pair = isinstance(objective, PairQuestion)
        if is_pair and assembly.relations.isdisjoint(objective.classes):
            raise ValueError(
                f"objectives.{name} needs {objective.rows_asked}, not {assembly.kind}"  # type: ignore[attr-defined]
            )
        reason = objective.misplaced(dict(listed[:place]), dict(listed[place + 1 :]))
        if reason is not None:
            raise ValueError(f"phases.{number}: objectives.{name} {reason}")
        objective.drafter(recipe.encoder)
    if is_empty(seen):
        raise ValueError(
            f"phases.{number}: objectives.causal.direction and encoder.visibility go opposite "
            f"ways, so that a place sees nothing but itself"
        )
    plain = isinstance(recipe.encoder.mixer, AttentionChoice) and recipe.encoder.local is None
    if isinstance(turn.visibility, InOrder) and not (
        plain and is_two_sided(recipe.encoder.visibility)
    ):
        raise ValueError(
            f"phases.{number}: objectives.permutation asks from places behind the text: set "
            f"encoder.visibility to bidirectional or document, encoder.local to null and "
            f"encoder.mixer.kind to attention"
        )
    if recipe.encoder.embeddings.reads_neighbours and not is_two_sided(seen):
        raise ValueError(
            f"phases.{number}: encoder.embeddings makes a place of the next piece as well: "
            f"choose another kind, or objectives that see both sides"
        )
    by_halves = is_by_halves(recipe.encoder.visibility)
    naming = any(o.names_pieces or o.rewrites for o in turn.objectives.values())
    if naming and is_by_halves(turn.visibility) != by_halves:
        raise ValueError(
            f"phases.{number}: objectives.causal.direction both and encoder.visibility "
            f"both-ways need each other, and no other question names pieces beside them"
        )


def _tables(recipe: "Recipe") -> None:
    """What shares the table of pieces needs one."""
    tables, output = recipe.encoder.embeddings, recipe.output
    shared = output.width(recipe.encoder) - output.own_width(recipe.encoder)
    if output.tied and shared != recipe.encoder.table_width:
        raise ValueError(
            f"output meets a table {recipe.encoder.table_width} wide with states {shared} wide: "
            f"set output.transform to true, or give it tables of its own"
        )
    kind = tables.kind  # type: ignore[attr-defined]
    alike = (
        isinstance(tables, Adaptive)
        and isinstance(output, AdaptiveSoftmax)
        and tables.cutoffs == output.cutoffs
    )
    if output.tied and not tables.one_table and not alike:
        raise ValueError(
            f"output shares the table of pieces, and embeddings {kind} have none that it could "
            f"share: set output.kind to untied, or both to adaptive with the same cutoffs"
        )
    for name, objective in recipe.objectives.items():
        if objective.shares_table and not tables.one_table:
            raise ValueError(
                f"objectives.{name} shares the table of pieces, and embeddings {kind} do not "
                f"have one: set encoder.embeddings.kind to pieces"
            )
        if objective.rewrites and tables.reads_neighbours:
            raise ValueError(
                f"objectives.{name} shares what is added to the pieces, and embeddings {kind} "
                f"add it wider: set encoder.embeddings.kind to pieces or factorised"
            )


def _decoding(recipe: "Recipe", asked: dict[str, Objective]) -> None:
    decoding = [name for name, objective in asked.items() if objective.decodes]
    if decoding and recipe.decoder is None:
        raise ValueError(f"objectives.{decoding[0]} needs a decoder: state one, as decoder: {{}}")
    if decoding and recipe.assembly.parted_by:
        raise ValueError(
            f"a decoder reads a row as one text: set assembly {recipe.assembly.parted_by} to false"
        )
