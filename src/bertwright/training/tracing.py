"""One row on its way through training: what was assembled, what is hidden, what is asked where, and
what a model answers."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertwright.encoder.visibility import Visibility
from bertwright.errors import UserError
from bertwright.examples.assembly import Mixture
from bertwright.examples.batches import Batch
from bertwright.examples.coordinates import RELATIONS, Rows
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.objective import Draft, Objective, Reading, visibility_of
from bertwright.recipes import Recipe
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer
from bertwright.training.clock import Place
from bertwright.training.recipe_batches import RecipeBatches


@dataclass(frozen=True)
class Answer:
    """One of the best answers of a model."""

    choice: str
    probability: float


@dataclass(frozen=True)
class Ask:
    """A question at a place.

    ``beside`` is what else the answer depends on, by name. ``probability`` is that of the right
    answer, None where no model was asked.
    """

    objective: str
    target: str
    beside: Mapping[str, int | str]
    answers: tuple[Answer, ...] = ()
    probability: float | None = None


@dataclass(frozen=True)
class Token:
    """A place of a row.

    ``piece`` is what the assembly put there, None for a place behind the text that asks about one
    in it; ``shown`` what the encoder sees, ``written`` what a network put in its place, where one
    did. ``coordinates`` are those that the recipe has.
    """

    place: int
    piece: str | None
    shown: str
    hidden: bool
    special: bool
    coordinates: Mapping[str, int]
    asks: tuple[Ask, ...]
    written: str | None = None

    @property
    def padding(self) -> bool:
        """Whether nothing stands here and nothing is asked."""
        return self.coordinates.get("document") == -1 and not self.asks

    @property
    def of_text(self) -> bool:
        """Whether something stands here."""
        return self.piece is not None and not self.padding


@dataclass(frozen=True)
class Trace:
    """A row of a phase; ``relation`` is what its second text is to the first, where it is a
    pair."""

    recipe: str
    phase: int
    row: int
    epoch: int
    objectives: tuple[str, ...]
    relation: str | None
    tokens: tuple[Token, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Answered:
    """What a model says of a batch: the pieces that it sees (B, L), logits (M, C) by question."""

    seen: Tensor
    logits: Mapping[str, Tensor]


def trace(
    recipe: Recipe,
    data: Data,
    phase: int,
    row: int = 0,
    epoch: int = 0,
    model: Model | None = None,
    num_answers: int = 3,
    turn: int = 0,
) -> Trace:
    """Row ``row`` of a phase as training draws it in an epoch, in the middle of the phase; where
    questions take turns, those of one turn.

    Errors: UserError where there is no such phase or row.
    """
    check_phase(recipe, phase)
    batches = RecipeBatches(recipe, data)
    objectives = recipe.turns_of(phase)[turn].objectives
    found = batches.rows_in_epoch(phase, objectives)
    if row >= found:
        raise UserError(f"there is no row {row}: the text makes {found}, counted from 0")
    index, epochs = np.array([row]), np.array([epoch])
    originals = batches.assembled(phase, objectives, index, epochs)
    batch = batches.asked(Place(0, 0.5, phase, 0.5, 0, 0.5), objectives, index, epochs)
    answered = None if model is None else answers(model, batch, objectives)
    asks = {
        name: _asks(name, objective, batch, data.tokenizer, answered, num_answers)
        for name, objective in objectives.items()
        if objective.guesses
    }
    relation = None if originals.relation is None else RELATIONS[int(originals.relation[0])]
    tokens = _tokens(originals, batch, data.tokenizer, asks, answered)
    return Trace(recipe.name, phase, row, epoch, tuple(objectives), relation, tokens)


def check_phase(recipe: Recipe, phase: int) -> None:
    """Errors: UserError where a recipe has no such phase."""
    if phase >= len(recipe.phases):
        raise UserError(
            f"there is no phase {phase}: {recipe.name} has {len(recipe.phases)}, counted from 0"
        )


@torch.no_grad()
def answers(model: Model, batch: Batch, objectives: Mapping[str, Objective]) -> Answered:
    """What a model says to the questions of a batch; those that it has no head for are left out."""
    moved = TensorBatch(batch, model.embedding.device)
    rule: Visibility = model.encoder.rule & visibility_of(list(objectives.values()))
    heads = dict(model.heads.items())
    known = {n: o for n, o in objectives.items() if o.guesses and _can_answer(model, n, o)}
    seen, found = moved.pieces, dict[str, Tensor | None]()
    for name, objective in known.items():
        if objective.rewrites:
            draft = Draft(seen, moved.coordinates, rule, None, 0)
            asked, head = moved.questions[name], heads.get(name)
            found[name] = objective.draft_logits(asked, draft, head)
            seen, _ = objective.rewrite(asked, draft, head)
    states = model.encoder(seen, moved.coordinates, rule)
    reading = Reading(
        seen,
        states,
        model.embedding,
        model.output,
        coordinates=moved.coordinates,
        decoder=model.decoder,
    )
    for name, objective in known.items():
        if not objective.rewrites:
            found[name] = objective.logits(moved.questions[name], reading, heads.get(name))
    return Answered(seen, {name: logits for name, logits in found.items() if logits is not None})


def _can_answer(model: Model, name: str, objective: Objective) -> bool:
    if objective.names_pieces:
        return model.output is not None
    return type(model.recipe.objectives.get(name)) is type(objective)


def _asks(
    name: str,
    objective: Objective,
    batch: Batch,
    tokenizer: Tokenizer,
    answered: Answered | None,
    num_answers: int,
) -> dict[int, list[Ask]]:
    """The questions of one objective that count, by their place."""
    question = batch.questions[name]
    logits = None if answered is None else answered.logits.get(name)
    found: dict[int, list[Ask]] = {}
    for number in np.flatnonzero(question.weight > 0):
        where, target = int(question.where[number]), int(question.target[number])
        stated = {key: int(values[number]) for key, values in question.beside.items()}
        beside = objective.name_beside(stated, tokenizer.piece)
        ask = Ask(name, objective.name_target(target, tokenizer.piece), beside)
        if answered is not None and logits is not None:
            chances = logits[number].double().softmax(-1)
            seen = answered.seen.flatten()[where : where + 1]
            right = int(objective.right(torch.tensor([target]).to(seen), seen))
            num_possible = int((logits[number] > -torch.inf).sum())
            best = chances.topk(min(num_answers, num_possible))
            ask = Ask(
                name,
                objective.name_choice(right, tokenizer.piece),
                beside,
                tuple(
                    Answer(objective.name_choice(int(choice), tokenizer.piece), float(chance))
                    for chance, choice in zip(best.values, best.indices, strict=True)
                ),
                float(chances[right]),
            )
        found.setdefault(where, []).append(ask)
    return found


def _tokens(
    originals: Rows,
    batch: Batch,
    tokenizer: Tokenizer,
    asks: Mapping[str, Mapping[int, list[Ask]]],
    answered: Answered | None,
) -> tuple[Token, ...]:
    length = originals.pieces.shape[1]
    shown: list[int] = batch.pieces[0].tolist()
    written: list[int] = shown if answered is None else answered.seen[0].tolist()
    present = {name: values[0] for name, values in batch.coordinates.present().items()}
    present = {"position": np.arange(len(shown)), **present}
    tokens: list[Token] = []
    for place, piece in enumerate(shown):
        of_text = place < length
        original = int(originals.pieces[0, place]) if of_text else None
        tokens.append(
            Token(
                place,
                None if original is None else tokenizer.piece(original),
                tokenizer.piece(piece),
                hidden=original is not None and original != piece,
                special=bool(originals.special[0, place]) if of_text else False,
                coordinates={name: int(values[place]) for name, values in present.items()},
                asks=tuple(ask for own in asks.values() for ask in own.get(place, ())),
                written=tokenizer.piece(written[place]) if written[place] != piece else None,
            )
        )
    return tuple(tokens)


def different_phases(recipe: Recipe) -> list[int]:
    """The phases that assemble or ask otherwise than one before them."""
    first: dict[str, int] = {}
    for phase in range(len(recipe.phases)):
        asked = {name: o.model_dump_json() for name, o in recipe.objectives_of(phase).items()}
        first.setdefault(f"{recipe.assembly_of(phase).model_dump_json()} {asked}", phase)
    return list(first.values())


def shortened_to(recipe: Recipe, data: Data) -> Recipe:
    """The recipe with rows no longer than a text of few pieces can fill, and without those parts of
    a mixture that it has nothing for."""
    frame = 0 if recipe.assembly.in_order else 2
    longest = max(8, data.split("train").num_pieces + frame)
    assembly = recipe.assembly.model_copy(update={"length": min(longest, recipe.assembly.length)})
    lacking = {"translations", "dialogues"}
    if len(data.split("train").translations):
        lacking.remove("translations")
    if data.split("train").turns is not None:
        lacking.remove("dialogues")
    if isinstance(assembly, Mixture) and lacking & assembly.needs:
        parts = {n: part for n, part in assembly.parts.items() if not lacking & part.needs}
        assembly = assembly.model_copy(update={"parts": parts, "shares": {}})
    phases = tuple(
        phase
        if phase.length is None
        else phase.model_copy(update={"length": min(longest, phase.length)})
        for phase in recipe.phases
    )
    return recipe.model_copy(update={"assembly": assembly, "phases": phases})
