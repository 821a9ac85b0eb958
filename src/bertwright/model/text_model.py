"""A model with its tokenizer: text in, vectors and answers out."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertwright.axes import ReadingPrecision, did_you_mean
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.eight_bits import eight_bits_are_fast
from bertwright.encoder.stream import Coordinates
from bertwright.errors import UserError
from bertwright.machine.process import usual_device
from bertwright.machine.speed import usual_precision
from bertwright.model.faster import faster
from bertwright.model.finite import require_numbers
from bertwright.model.folder import save_model
from bertwright.model.generating.continuing import Continuation
from bertwright.model.generating.decoding import decoding_of
from bertwright.model.generating.generate import Spoken, generate
from bertwright.model.hidden import last_asked, states_asked
from bertwright.model.layers import Layers, Mix, layers_of
from bertwright.model.likelihood import log_likelihoods
from bertwright.model.model import Model
from bertwright.model.reading import (
    SMALL_TOKEN_BUDGET,
    TOKEN_BUDGET,
    ReadBatch,
    read_batches,
    single,
)
from bertwright.model.scoring import pseudo_log_likelihoods
from bertwright.objectives.causal import Causal
from bertwright.objectives.masked import Masked
from bertwright.recipes import Pooling
from bertwright.text.tokenizers import Tokenizer

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Guess:
    """One answer to a hidden place."""

    piece: str
    probability: float


class TextModel:
    """A trained model, ready to use: its weights are those that it had when it was first used.

    ``precision`` None takes bfloat16 where the device multiplies it natively, else float32. In
    ``int8`` the matrices of the encoder are of 8 bits, and so is what they are multiplied with, all
    else is as it usually is: for processors that multiply 8 bits faster, beside a card too. Errors:
    UserError for another precision, and for int8 elsewhere.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, precision: ReadingPrecision | None = None
    ) -> None:
        if precision not in (None, *get_args(ReadingPrecision)):
            known = ", ".join(get_args(ReadingPrecision))
            raise UserError(f"there is no precision {precision!r}: choose one of {known}")
        self.device = torch.device("cpu") if precision == "int8" else usual_device()
        self.model = model.to(self.device).eval()
        self.tokenizer = tokenizer
        self.model.keep_tokens(tokenizer)
        self.precision: ReadingPrecision = precision or usual_precision(self.device)
        if self.precision == "int8" and not eight_bits_are_fast():
            raise UserError(
                "int8 needs an x86 processor with AVX2 or more: leave the precision out"
            )
        self._fast_encoder: Encoder | None = None

    def save(self, folder: str | Path) -> None:
        """Write the model folder."""
        save_model(Path(folder), self.model, self.tokenizer)

    @torch.inference_mode()
    def encode(
        self,
        texts: str | Sequence[str],
        layers: str = "last",
        mix: Mix = "concat",
        language: str | None = None,
    ) -> list[Vectors]:
        """The state of every piece of every text, special tokens included: (tokens, D) each.

        ``layers`` and ``mix`` are those of :meth:`embed`. ``language`` is that of the texts, for an
        encoder with a vector for each; None means the first that it knows.
        """
        texts = _several(texts)
        result: list[Vectors] = [np.empty((0, 0), np.float32)] * len(texts)
        chosen = layers_of(layers, mix, self.model.recipe.encoder.widths)
        for batch in self._batches(self.rows(texts), language):
            states = self.states(chosen, batch).float().cpu().numpy()
            for row, number in enumerate(batch.numbers):
                result[number] = states[row, : batch.lengths[row]]
        return result

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: Pooling | None = None,
        normalise: bool = False,
        layers: str = "last",
        mix: Mix = "concat",
        language: str | None = None,
    ) -> Vectors:
        """One vector per text, (N, D) float32.

        ``pooling`` is the ``mean`` over the pieces or ``cls``, the first piece; None takes that of
        the recipe. ``layers`` names those that are read: ``last``, a number (0 is the embeddings),
        ``5-8``, ``2,4``, ``last-4`` or ``all``; where there are several, ``mix`` puts them side by
        side (``concat``), or takes their ``sum`` or their ``mean``. ``language`` as in
        :meth:`encode`.
        """
        rows = self.rows(_several(texts))
        return self.embed_rows(rows, pooling, normalise, layers, mix, language)

    def embed_rows(
        self,
        rows: Sequence[Sequence[int]],
        pooling: Pooling | None = None,
        normalise: bool = False,
        layers: str = "last",
        mix: Mix = "concat",
        language: str | None = None,
    ) -> Vectors:
        """As :meth:`embed`, of texts that are rows of pieces already, special ones included."""
        pooling = pooling or self.model.recipe.vectors.pooling
        if pooling not in ("mean", "cls"):
            raise UserError(f"there is no pooling {pooling!r}: choose mean or cls")
        chosen = layers_of(layers, mix, self.model.recipe.encoder.widths)
        vectors: Vectors | None = None
        for batch in self._batches(rows, language):
            states = self.states(chosen, batch)
            pooled = _pool(states, batch.coordinates.document, pooling)
            if normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
            if vectors is None:
                vectors = np.empty((len(rows), pooled.shape[1]), np.float32)
            vectors[batch.numbers] = require_numbers(pooled.cpu()).numpy()
        if vectors is None:
            return np.empty((0, chosen.width), np.float32)
        return vectors

    def fill_mask(
        self, text: str, top_k: int = 5, language: str | None = None
    ) -> list[list[Guess]]:
        """The best answers for every hidden place of a text, in order, in float32.

        A place is hidden by writing ``[MASK]``, or the mask as this tokenizer spells it.
        ``language`` as in :meth:`encode`.
        """
        return self.fill_row(self.hiding_row(text), top_k, language)

    def hiding_row(self, text: str) -> list[int]:
        """The row of a text that hides places, special pieces included.

        Errors: UserError for a model that fills none, a text that hides none, and one that hides
        them where the model does not read.
        """
        self.require_output("fill-mask")
        if not self.fills_places:
            raise UserError(
                f"fill-mask needs a model that fills places, and {self.model.recipe.name} names "
                f"what comes next: use generate or score"
            )
        self._require_items(text)
        mask, ids = self.tokenizer.specials.mask, self.tokenizer.encode_hiding(text)
        if mask not in ids:
            raise UserError(f"the text hides nothing: write [MASK] where a piece is asked ({text})")
        row = single(ids, self.tokenizer.specials, self.model.encoder.longest)
        if row.count(mask) < ids.count(mask):
            raise UserError(
                f"the text hides places behind the {self.model.encoder.longest} pieces that the "
                f"model reads: shorten it ({text[:40]}...)"
            )
        return row

    @torch.inference_mode()
    def fill_row(
        self, row: Sequence[int], top_k: int = 5, language: str | None = None
    ) -> list[list[Guess]]:
        """As :meth:`fill_mask`, of what :meth:`hiding_row` made of a text."""
        mask = self.tokenizer.specials.mask
        pieces = torch.tensor([list(row)], device=self.device)
        coordinates = self._spoken(Coordinates.plain(pieces), pieces, language)
        hidden = pieces == mask
        where = hidden[0].nonzero().T
        states = states_asked(self.model, pieces, coordinates, hidden, where, mask)[0]
        chances = require_numbers(torch.softmax(self.model.logits(states).float(), -1))
        chances = chances.topk(min(top_k, len(self.tokenizer.ids)))
        return [
            [
                Guess(self.tokenizer.piece(int(i)), float(p))
                for p, i in zip(values, which, strict=True)
            ]
            for values, which in zip(chances.values, chances.indices, strict=True)
        ]

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        max_new_tokens: int = 64,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        repetition_penalty: float = 1.0,
        stop: str | Sequence[str] = (),
        sweeps: int = 1,
        beams: int = 1,
        length_power: float = 1.0,
        seed: int = 0,
        num_samples: int = 1,
        by: str | None = None,
        language: str | None = None,
        into: str | None = None,
    ) -> list[Continuation]:
        """What follows each prompt, ``num_samples`` times, in order and in float32.

        The settings are those of :class:`~bertwright.model.generating.decoding.Decoding`; a
        temperature of 0 always takes the most probable piece, and with several ``beams`` the
        samples of a prompt are the best texts that they end in. What is drawn depends on the seed,
        the prompt and the number of the sample, on nothing else. ``by`` names the question of the
        recipe that is asked, where it has several that can be. ``language`` is that of the prompts,
        ``into`` that of what a decoder says, for a model that has vectors of them.

        Errors: UserError for a model that names no pieces, a prompt that is too long, and a setting
        that cannot be.
        """
        decoding = decoding_of(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            sweeps=sweeps,
            beams=beams,
            length_power=length_power,
            seed=seed,
        )
        spoken = Spoken(self._language(language), self._language(into))
        return generate(
            self.model, self.tokenizer, _several(prompts), decoding, num_samples, by, spoken
        )

    def score(self, texts: str | Sequence[str], language: str | None = None) -> list[float]:
        """The log-likelihood of every text, in nats and float32.

        Of a causal model it is the sum over its pieces, each given those before it. Of any other it
        is the pseudo-log-likelihood: each piece is hidden in turn, together with the later pieces
        of its word (Kauf and Ivanova 2023). ``language`` as in :meth:`encode`.
        """
        self.require_output("score")
        scores = log_likelihoods if self.continues else pseudo_log_likelihoods
        return scores(self.model, self.tokenizer, _several(texts), self._language(language))

    def record(self, *patterns: str) -> AbstractContextManager[dict[str, Tensor]]:
        """Collect the values with these names while texts are read; see ``Encoder.record``."""
        return self.model.record(*patterns)

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Put another value in the place of those with this name; see ``Encoder.replace``."""
        return self.model.replace(pattern, function)

    @torch.inference_mode()
    def states(self, layers: Layers, batch: ReadBatch, wanted: Tensor | None = None) -> Tensor:
        """The states of these layers in a batch, (B, L, width of the layers), or those of the
        ``wanted`` flat places (M,), (M, width).

        Inner layers, and values that someone looks at or replaces, are read in float32: what
        computes faster has no names inside.
        """
        last = self.model.encoder.taps.idle and layers.numbers == (len(self.model.encoder.blocks),)
        encoder = self._encoder() if last else self.model.encoder
        return layers.states(encoder, batch.pieces, batch.coordinates, wanted=wanted)

    @property
    def continues(self) -> bool:
        """Whether the last of the training asked for next pieces."""
        return any(isinstance(objective, Causal) for objective in last_asked(self.model))

    @property
    def longest(self) -> int | None:
        """Pieces of the longest row that a text is read in; None for any."""
        limits = (self.model.recipe.vectors.longest, self.model.encoder.longest)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def token_budget(self) -> int:
        """Places that are read at once."""
        return SMALL_TOKEN_BUDGET if self.precision == "int8" else TOKEN_BUDGET

    @property
    def names_pieces(self) -> bool:
        """Whether pieces are named from the states of the encoder: there is an output, and it is
        not the decoder's alone."""
        if self.model.output is None:
            return False
        return any(o.names_pieces and not o.decodes for o in self.model.recipe.objectives.values())

    @property
    def fills_places(self) -> bool:
        """Whether pieces are named that are hidden, not only those that come next."""
        masked = any(isinstance(objective, Masked) for objective in last_asked(self.model))
        return self.names_pieces and (masked or not self.continues)

    def require_output(self, verb: str) -> None:
        """UserError where pieces are not named from the states of the encoder."""
        if self.model.output is None:
            raise UserError(
                f"{verb} needs a model with an output over the vocabulary; this has none"
            )
        if not self.names_pieces:
            raise UserError(
                f"{verb} needs an encoder that names pieces, and in {self.model.recipe.name} the "
                f"decoder does: use generate"
            )

    def require_words(self, verb: str) -> None:
        """UserError where the pieces are items, to which all text is unknown."""
        if self.tokenizer.kind == "items":
            raise UserError(
                f"{verb} reads text, and {self.model.recipe.name} knows items: use evaluate or "
                f"fill-mask"
            )

    def pieces(self, texts: Sequence[str]) -> list[list[int]]:
        """The pieces of texts, without special ones, however many they are.

        Errors: UserError for items that are not known.
        """
        for text in texts:
            self._require_items(text)
        return self.tokenizer.encode_batch(list(texts))

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """As :meth:`pieces`, with special ones, cut to the longest row."""
        return [single(ids, self.tokenizer.specials, self.longest) for ids in self.pieces(texts)]

    def _require_items(self, text: str) -> None:
        """UserError for an item that is not known; a text is never unknown."""
        if self.tokenizer.kind != "items":
            return
        for item in text.replace("[MASK]", " ").split():
            if self.tokenizer.encode(item) == [self.tokenizer.specials.unknown]:
                raise UserError(
                    f"{self.model.recipe.name} knows no item {item!r}: name those that it was "
                    f"trained on, with _ for each space in a name"
                )

    def _batches(
        self, rows: Sequence[Sequence[int]], language: str | None = None
    ) -> Iterator[ReadBatch]:
        pad, budget = self.tokenizer.specials.pad, self.token_budget
        for batch in read_batches(rows, pad, self.device, budget=budget):
            spoken = self._spoken(batch.coordinates, batch.pieces, language)
            yield replace(batch, coordinates=spoken)

    def _spoken(
        self, coordinates: Coordinates, pieces: Tensor, language: str | None
    ) -> Coordinates:
        """The coordinates of texts in a language; UserError where the encoder does not know it."""
        return coordinates.spoken(pieces, self._language(language))

    def _language(self, language: str | None) -> int | None:
        if language is None:
            return None
        known = self.model.recipe.encoder.embeddings.languages
        if not known:
            raise UserError("the encoder has no vectors of languages: leave --language out")
        if language not in known:
            raise UserError(
                f"the encoder has no vector for the language {language!r}"
                f"{did_you_mean(language, known)}"
            )
        return known.index(language)

    def _encoder(self) -> Encoder:
        if self._fast_encoder is None:
            self._fast_encoder = faster(self.model.encoder, self.precision, self.device)
        return self._fast_encoder


def _several(texts: str | Sequence[Any]) -> list[str]:
    several: list[Any] = [texts] if isinstance(texts, str) else list(texts)
    if odd := [text for text in several if not isinstance(text, str)]:
        raise UserError(f"texts are strings, and {odd[0]!r} is none")
    return several


def _pool(states: Tensor, document: Tensor | None, pooling: Pooling) -> Tensor:
    if pooling == "cls":
        return states[:, 0].float()
    if document is None:
        return states.float().mean(1)
    real = (document >= 0).float()
    return torch.einsum("bld,bl->bd", states.float(), real) / real.sum(1, keepdim=True)
