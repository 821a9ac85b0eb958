"""The encoder and the heads of a recipe."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertwright.encoder.characters import Characters, CharacterTable
from bertwright.encoder.decoder import Decoder
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.initialisation import initialise
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.memory import Memory
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Visibility
from bertwright.examples.batches import Batch
from bertwright.examples.questions import Question
from bertwright.model.memory import require_memory
from bertwright.objectives.generated import Generator
from bertwright.objectives.objective import (
    Asked,
    Draft,
    Host,
    Loss,
    Objective,
    Reading,
    visibility_of,
)
from bertwright.objectives.output import Output
from bertwright.recipes import Recipe
from bertwright.text.spelling import spelled, spelling
from bertwright.text.tokenizers import Tokenizer


class TensorBatch:
    """A batch on the device: pieces (B, L) int64, coordinates, what is asked, and ``beside`` it the
    same text as another network reads it."""

    def __init__(self, batch: Batch, device: torch.device | str = "cpu") -> None:
        self.pieces = torch.from_numpy(batch.pieces).to(device, torch.int64)
        self.coordinates = tensor_coordinates(batch, self.pieces)
        self.questions = {name: _asked(q, device) for name, q in batch.questions.items()}
        self.num_tokens = batch.num_tokens
        self.first_row = batch.first_row
        self.continues = batch.continues
        self.beside = None if batch.beside is None else TensorBatch(batch.beside, device)


def tensor_coordinates(batch: Batch, pieces: Tensor) -> Coordinates:
    """The coordinates that an encoder reads, on the device of the pieces."""

    def moved(values: NDArray[np.int32] | None) -> Tensor | None:
        return None if values is None else torch.from_numpy(values).to(pieces.device, torch.int64)

    own = batch.coordinates
    return replace(
        Coordinates.plain(pieces),
        position=moved(own.position),
        segment=moved(own.segment),
        document=moved(own.document),
        order=moved(own.order),
        language=moved(own.language),
        task=moved(own.task),
        backward=None if own.backward is None else moved(own.backward) == 1,
        asking=None if own.asking is None else torch.from_numpy(own.asking).to(pieces.device),
    )


def _asked(question: Question, device: torch.device | str) -> Asked:
    weight = question.weight
    whole = bool((weight == 1.0).all())
    return Asked(
        torch.from_numpy(question.where).to(device),
        torch.from_numpy(question.target).to(device),
        None if whole else torch.from_numpy(weight).to(device),
        float(weight.sum()),
        {name: torch.from_numpy(values).to(device) for name, values in question.beside.items()},
    )


class Model(nn.Module):
    """An encoder, a decoder where the recipe has one, an output over the vocabulary where a
    question needs one, and the heads of the objectives that have one, by the objective's name;
    ``teaching`` is what a teacher trains beside it, and not saved."""

    def __init__(self, recipe: Recipe, vocabulary_size: int) -> None:
        super().__init__()
        self.recipe = recipe
        self.vocabulary_size = vocabulary_size
        self.encoder = Encoder(recipe.encoder, vocabulary_size)
        names_pieces = any(o.names_pieces for o in recipe.objectives.values())
        self.output: Output | None = (
            recipe.output.build(recipe.encoder, vocabulary_size) if names_pieces else None
        )
        if self.output is not None:
            self.output.share(self.encoder.embeddings)
        host = Host(recipe.encoder, self.encoder.embeddings, vocabulary_size)
        heads = {name: o.head(host) for name, o in recipe.objectives.items()}
        self.heads = nn.ModuleDict({n: head for n, head in heads.items() if head is not None})
        self.decoder: Decoder | None = (
            Decoder(recipe.decoder, recipe.encoder, self.encoder) if recipe.decoder else None
        )
        width = recipe.encoder.width
        self.pooler = nn.Linear(width, width) if recipe.pooler else None
        self.teaching: nn.Module | None = None

    @staticmethod
    def build(recipe: Recipe, vocabulary_size: int, tokenizer: Tokenizer | None = None) -> "Model":
        """A model with its parameters drawn from the recipe's seed.

        Where the vectors of pieces are made of their characters the tokenizer says how they are
        written; without one they are written as their numbers. Errors: UserError for a model that
        is larger than the memory of this machine.
        """
        with torch.device("meta"):
            require_memory(Model(recipe, vocabulary_size), f"recipe {recipe.name}")
        model = Model(recipe, vocabulary_size)
        initialise(model, recipe.encoder.initialisation, recipe.seed)
        if tokenizer is not None:
            model.keep_tokens(tokenizer)
        choice, pieces = recipe.encoder.embeddings, model.encoder.embeddings.pieces
        if isinstance(choice, Characters) and isinstance(pieces, CharacterTable):
            numbers = [str(piece) for piece in range(vocabulary_size)]
            pieces.spell(
                spelled(numbers, choice.longest)
                if tokenizer is None
                else spelling(tokenizer, vocabulary_size, choice.longest)
            )
        return model

    @property
    def remembers(self) -> int:
        """How many places before a row are seen, where its text goes on from another."""
        return self.recipe.encoder.memory

    @property
    def embedding(self) -> Tensor:
        """The table of pieces (V, E), or that which their vectors are made from."""
        return self.encoder.embeddings.table

    def losses(
        self,
        batch: TensorBatch,
        objectives: Mapping[str, Objective],
        noise: Noise | None = None,
        memory: Memory | None = None,
    ) -> dict[str, Loss]:
        """One loss for every question of the batch.

        Those that rewrite what is seen are asked first; one pass answers the others, and notes in
        ``memory`` what the next batch is to remember.
        """
        asked_now = [objectives[name] for name in batch.questions]
        rule = self.encoder.rule & visibility_of(asked_now)
        heads = dict(self.heads.items())
        pieces, losses = batch.pieces, dict[str, Loss]()
        first_place = batch.first_row * pieces.shape[1]
        for name, asked in batch.questions.items():
            if objectives[name].rewrites:
                draft = Draft(pieces, batch.coordinates, rule, noise, first_place)
                pieces, losses[name] = objectives[name].rewrite(asked, draft, heads.get(name))
        notes: dict[str, Tensor] = {}
        wanted = _wanted(batch, objectives)
        states = self.encoder(
            pieces, batch.coordinates, rule, noise, memory=memory, notes=notes, wanted=wanted
        )
        reading = Reading(
            pieces,
            states,
            self.embedding,
            self.output,
            notes,
            batch.coordinates,
            self.decoder,
            noise,
            wanted,
        )
        for name, asked in batch.questions.items():
            if not objectives[name].rewrites:
                losses[name] = objectives[name].answer(asked, reading, heads.get(name))
        return losses

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates | None = None,
        rule: Visibility | None = None,
        stop_after: int | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to states (B, L, D)."""
        states: Tensor = self.encoder(pieces, coordinates, rule, stop_after=stop_after)
        return states

    def logits(self, states: Tensor) -> Tensor:
        """states (M, D) to logits over the vocabulary (M, V): those of the first part of a state,
        which reads forward, where its halves read different ways; -inf for rows of the table
        without a token."""
        return self._output().logits(self._forward_part(states), self.embedding)

    def row_logits(self, states: Tensor) -> Tensor:
        """The same of all rows of the table, as stock classes have them."""
        return self._output().row_logits(self._forward_part(states), self.embedding)

    def keep_tokens(self, tokenizer: Tokenizer) -> None:
        """Predict nothing but the tokens of a tokenizer: a table may have other rows."""
        ids = torch.from_numpy(tokenizer.ids)
        for module in self.modules():
            if isinstance(module, Output):
                module.keep_tokens(ids)

    def _output(self) -> Output:
        assert self.output is not None, "this recipe has no output over the vocabulary"
        return self.output

    def _forward_part(self, states: Tensor) -> Tensor:
        return states[..., : self.recipe.encoder.part_width]

    def record(
        self, *patterns: str, gradients: bool = False
    ) -> AbstractContextManager[dict[str, Tensor]]:
        """Collect values by name; see ``Encoder.record``."""
        return self.encoder.record(*patterns, gradients=gradients)

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[Any]:
        """Replace values by name; see ``Encoder.replace``."""
        return self.encoder.replace(pattern, function)

    def compile_parts(self) -> None:
        """Compile what repays it: the block, the joining of embeddings, the output."""
        self.encoder.compile_parts()
        if self.decoder is not None:
            self.decoder.compile_parts()
        for part in (self.output, *self.heads.values()):
            if isinstance(part, Output | Generator):
                part.compile_parts()


def _wanted(batch: TensorBatch, objectives: Mapping[str, Objective]) -> Tensor | None:
    """The flat places (M,) whose states alone the questions of a batch are answered from; None
    where these are most of them."""
    found: list[Tensor] = []
    for name, asked in batch.questions.items():
        if not objectives[name].rewrites:
            places = objectives[name].places(asked)
            if places is None:
                return None
            found.append(places)
    few = 2 * sum(map(len, found)) < batch.pieces.numel()
    return torch.cat(found) if found and few else None
