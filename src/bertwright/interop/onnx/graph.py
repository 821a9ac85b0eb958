"""A model as a graph: tensors in, tensors out, for rows of any number and length."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from bertwright.encoder.bottleneck import Narrowed
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.mixers.attention import Attention
from bertwright.encoder.mixers.fixed import FixedAttention
from bertwright.encoder.stream import Coordinates
from bertwright.interop.huggingface.purposes import Net
from bertwright.interop.onnx.inputs import ANSWERS, LANGUAGES, PIECES, REAL, SEGMENTS, STATES, Given
from bertwright.interop.onnx.recurrence import lay_in_rows
from bertwright.model.layers import Layers
from bertwright.model.model import Model
from bertwright.model.reading import ReadBatch
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.fine_tuned import FineTuned


def inputs_of(recipe: Recipe) -> tuple[str, ...]:
    """What the graph of a recipe is given, in this order."""
    encoder = recipe.encoder
    segments = [SEGMENTS] if encoder.tells_segments else []
    languages = [LANGUAGES] if encoder.embeddings.languages else []
    return (PIECES, REAL, *segments, *languages)


def outputs_of(model: TextModel) -> tuple[str, ...]:
    """What the graph of a model gives, in this order."""
    answers = isinstance(model, FineTuned) or model.names_pieces
    return (STATES, ANSWERS) if answers else (STATES,)


def given_to(batch: ReadBatch, inputs: Sequence[str]) -> Given:
    """What a graph with these inputs is given of a batch; what is not said is 0."""
    own, shape = batch.coordinates, tuple(batch.pieces.shape)
    real = None if own.document is None else (own.document >= 0).long()
    told = {PIECES: batch.pieces, REAL: real, SEGMENTS: own.segment, LANGUAGES: own.language}
    return {
        name: np.full(shape, int(name == REAL)) if values is None else values.cpu().numpy()
        for name, values in ((name, told[name]) for name in inputs)
    }


class Graph(nn.Module):
    """A model that is given tensors by their order, and gives tensors alone."""

    def __init__(self, net: Net, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        super().__init__()
        self.net, self.inputs, self.outputs = net, inputs, outputs

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """The inputs, (B, L) int64 each, to the outputs."""
        named = dict(zip(self.inputs, given, strict=True))
        pieces = named[PIECES]
        coordinates = replace(
            Coordinates.plain(pieces),
            document=named[REAL] - 1,
            segment=named.get(SEGMENTS),
            language=named.get(LANGUAGES),
        )
        if not isinstance(self.net, Model):
            return self._answered(pieces, coordinates)
        states = self.net.encoder(pieces, coordinates)
        return (states, self.net.row_logits(states)) if ANSWERS in self.outputs else (states,)

    def _answered(self, pieces: Tensor, coordinates: Coordinates) -> tuple[Tensor, Tensor]:
        """The states and what a head makes of the layers that it reads."""
        assert not isinstance(self.net, Model)
        net, head, depth = self.net, self.net.head, len(self.net.encoder.blocks)
        if head.layers.numbers == (depth,):
            read = states = net.encoder(pieces, coordinates)
        else:
            widths = (head.layers.width, net.recipe.encoder.width)
            both = Layers((*head.layers.numbers, depth), "concat", sum(widths))
            read, states = both.states(net.encoder, pieces, coordinates).split(widths, dim=-1)
        every = torch.arange(pieces.shape[0] * pieces.shape[1], device=pieces.device)
        wanted = head.places(pieces, coordinates.document, every)
        own = read if wanted is None else read.flatten(0, 1).index_select(0, wanted)
        answers = head(own, coordinates.document)
        return states, answers.unflatten(0, pieces.shape) if wanted is every else answers


def plain(net: Net) -> Net:
    """A copy in float32 that computes by the definitions, which hold for rows of any length.

    Pieces are looked up in one table, whatever their vectors are made of: they are made once. A
    gain and a bias that stand behind a matrix alone are its own (Sun et al. 2020): where something
    was added before, they stay.
    """
    copied = copy.deepcopy(net).cpu().float().eval().requires_grad_(False)
    encoder = copied.encoder
    encoder.tiling = "never"
    for module in encoder.modules():
        if isinstance(module, Attention | FixedAttention):
            module.kernel = "explicit"
        elif isinstance(module, Narrowed):
            module.fold()
    lay_in_rows(encoder)
    _made_once(encoder, net.vocabulary_size)
    return copied


@torch.no_grad()
def _made_once(encoder: Encoder, num_pieces: int) -> None:
    pieces = encoder.embeddings.pieces
    if not isinstance(pieces, nn.Embedding):
        made = cast(Tensor, pieces(torch.arange(num_pieces)))
        encoder.embeddings.pieces = nn.Embedding.from_pretrained(made)
