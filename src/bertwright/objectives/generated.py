"""A small network fills in what is hidden, and the encoder sees its guesses (Clark et al. 2020)."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.embeddings import Factorised
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise, uniform
from bertwright.examples.corruption import Corruption, Replace

from .hiding import Hiding
from .objective import Asked, Draft, Host, Loss
from .output import Output, Tied

SITE = 64
"""Of the random numbers that guesses are drawn with."""

NOISE = 2000
"""The number of the first of its blocks, of which none has that of one of the encoder."""


class Generated(Hiding):
    """Hide pieces, have a generator name them, and put what it guesses in their place.

    The generator is the encoder at ``width`` times its width, with ``layers`` blocks (None: as
    many); it shares the tables and the norm of the embeddings, but for positions that are not added
    to the pieces. Guesses are drawn from its softmax; no gradient passes through them.
    """

    kind: Literal["generated"] = "generated"
    corruption: Corruption = Replace(mask=0.85, random=0.0, keep=0.15)
    width: float = Field(default=0.25, gt=0.0, le=64)
    layers: int | None = Field(default=None, ge=1, le=1_024)

    shares_table: ClassVar[bool] = True
    rewrites: ClassVar[bool] = True

    def head(self, host: Host) -> "Generator":
        return Generator(self.drafter(host.choice), host)

    def per_place(self, length: int) -> float:
        return self.selection.rate.at(0.5)

    def drafter(self, encoder: EncoderChoice) -> EncoderChoice:
        tables, depth = encoder.embeddings, encoder.depth
        if self.layers is not None:
            if "layers" not in type(depth).model_fields:
                raise ValueError(
                    f"objectives.generated.layers is of a depth that is a number of layers, not "
                    f"{depth.kind}: leave it out"  # type: ignore[attr-defined]
                )
            depth = depth.model_copy(update={"layers": self.layers})
        embeddings = Factorised(
            width=encoder.table_width,
            segments=tables.segments,
            languages=tables.languages,
            tasks=tables.tasks,
            norm=tables.norm,
            scaled=tables.scaled,
            row_dropout=tables.row_dropout,
        )
        width = round(self.width * encoder.width)
        what = "objectives.generated, its generator"
        return encoder.changed(what, width=width, depth=depth, embeddings=embeddings)

    def rewrite(self, asked: Asked, draft: Draft, head: nn.Module | None) -> tuple[Tensor, Loss]:
        assert isinstance(head, Generator)
        states = self._states(asked, draft, head)
        table = head.encoder.embeddings.table
        loss, correct = head.output.loss(states, table, asked.target, asked.weight)
        # Fillers are guessed too, so that every step has as many guesses, and laid behind the end.
        guessed = head.guess(states, draft.noise, asked.where + draft.first_place)
        seen = pad(draft.pieces.flatten(), (0, 1))
        where = asked.where
        if asked.weight is not None:
            where = torch.where(asked.weight > 0, where, len(seen) - 1)
        seen = seen.index_copy(0, where, guessed)[:-1]
        return seen.view_as(draft.pieces), Loss(loss, asked.count, correct)

    def draft_logits(self, asked: Asked, draft: Draft, head: nn.Module | None) -> Tensor:
        assert isinstance(head, Generator)
        table = head.encoder.embeddings.table
        return head.output.logits(self._states(asked, draft, head), table)

    def name_choice(self, choice: int, piece: Callable[[int], str]) -> str:
        return piece(choice)

    def _states(self, asked: Asked, draft: Draft, head: "Generator") -> Tensor:
        noise = None if draft.noise is None else draft.noise.within(NOISE)
        states = head.encoder(draft.pieces, draft.coordinates, draft.rule, noise)
        return states.flatten(0, 1).index_select(0, asked.where)


class Generator(nn.Module):
    """A small encoder with an output; its tables are those of the encoder that sees the guesses."""

    def __init__(self, choice: EncoderChoice, host: Host) -> None:
        super().__init__()
        self.encoder = Encoder(choice, host.vocabulary_size)
        own, shared = self.encoder.embeddings, host.embeddings
        own.pieces, own.segments = shared.pieces, shared.segments
        own.languages, own.tasks = shared.languages, shared.tasks
        if choice.positions.added:
            own.positions = shared.positions
        own.join.norm = shared.join.norm
        self.output: Output = Tied().build(choice, host.vocabulary_size)

    @torch.no_grad()
    def guess(self, states: Tensor, noise: Noise | None, place: Tensor) -> Tensor:
        """A piece for each of states (M, D), drawn from the softmax: (M,) int64.

        ``place`` (M,) tells them apart; without noise the draw is always the same.
        """
        logits = self.output.logits(states, self.encoder.embeddings.table)
        shares = _running_sums(torch.softmax(logits.float(), dim=-1))
        drawn = uniform(noise or Noise.of(0, 0), place, SITE)[:, None] * shares[:, -1:]
        return torch.searchsorted(shares, drawn).squeeze(1).clamp(max=shares.shape[1] - 1)

    def compile_parts(self) -> None:
        """Compile the encoder and the output."""
        self.encoder.compile_parts()
        self.output.compile_parts()


def _running_sums(shares: Tensor) -> Tensor:
    """Of each row of (M, V).

    Where all is to be the same every time PyTorch refuses to sum so on a card, for the sake of one
    row alone; of several, the threads that have a row sum it in order.
    """
    strictness = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        return shares.cumsum(-1)
    finally:
        torch.set_deterministic_debug_mode(strictness)
