"""A decoder: a second stack of the same blocks, which reads what the encoder has read.

Every block has one more sublayer, the letter c of its order: cross-attention. All else, from the
embeddings to the last norm, is an encoder's whose places see those before them; the table of pieces
is that of the encoder (Vaswani et al. 2017).
"""

from pydantic import Field, field_validator
from torch import Tensor

from bertwright.axes import Settings
from bertwright.encoder.choice import EncoderChoice
from bertwright.encoder.depth import Stack
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.mixers import AttentionChoice, Mixer
from bertwright.encoder.positions import Positions
from bertwright.encoder.stream import Coordinates, Source
from bertwright.encoder.visibility import Causal

NOISE = 1000
"""Of the noise of a decoder within that of a step: more than an encoder has blocks."""


class DecoderChoice(Settings):
    """What a decoder has that its encoder has not: ``layers``, ``positions`` and ``mixer``, None
    for the same, and the ``order`` of the sublayers of a block. Its places see those before them,
    and are of no segment and no task."""

    layers: int | None = Field(default=None, ge=1, le=1_024)
    order: str = "scf"
    positions: Positions | None = None
    mixer: AttentionChoice | None = None

    @field_validator("order")
    @classmethod
    def _a_block(cls, order: str) -> str:
        if set(order) - set("scf") or order.count("s") > 1 or order.count("c") != 1:
            raise ValueError(
                f"{order!r} must hold one c (cross-attention), at most one s (attention), and f "
                f"(feed-forward)"
            )
        return order

    def of(self, encoder: EncoderChoice) -> EncoderChoice:
        """The axes of the decoder of an encoder.

        Errors: ValueError where there is no decoder of such an encoder.
        """
        mixer = self.mixer or encoder.mixer
        if reason := _unfit(encoder, mixer):
            raise ValueError(f"decoder: {reason}")
        assert isinstance(encoder.depth, Stack)
        layers = self.layers or encoder.depth.layers
        depth = encoder.depth.model_copy(update={"layers": layers, "order": self.order})
        plain = {"segments": 0, "tasks": 0, "asking": False}
        return encoder.changed(
            "decoder",
            depth=depth,
            embeddings=encoder.embeddings.model_copy(update=plain),
            positions=self.positions or encoder.positions,
            mixer=mixer,
            cut=None,
            visibility=Causal(),
        )


def _unfit(encoder: EncoderChoice, mixer: Mixer) -> str | None:
    """Why an encoder has no decoder, in words."""
    if not isinstance(encoder.depth, Stack):
        return "it needs a plain stack of blocks: set encoder.depth.kind to stack"
    if not isinstance(mixer, AttentionChoice) or mixer.gate is not None or mixer.asks_wide:
        return (
            "it needs plain attention: set encoder.mixer.kind to attention, its gate to null, "
            "global_projections to false, or give it a mixer of its own, decoder.mixer.kind"
        )
    if encoder.residual.is_reversible:
        return "a decoder is not reversed: choose another encoder.residual"
    if encoder.memory or encoder.local is not None or encoder.bottleneck is not None:
        return "it reads whole rows: set encoder.memory to 0, local and bottleneck to null"
    if not encoder.embeddings.one_table:
        return "it shares the table of pieces: choose embeddings of one table, such as pieces"
    if encoder.embeddings.reads_neighbours:
        return "embeddings that read the next piece would tell it what comes: choose another kind"
    return None


class Decoder(Encoder):
    """Pieces that are known so far, and what the encoder has read, to states.

    Its taps are those of the encoder, under names that begin with ``decoder``.
    """

    def __init__(self, choice: DecoderChoice, of: EncoderChoice, encoder: Encoder) -> None:
        size = len(encoder.embeddings.table)
        super().__init__(choice.of(of), size)
        self.embeddings.pieces = encoder.embeddings.pieces
        self.taps, self.prefix = encoder.taps, "decoder."

    def states(
        self,
        given: Tensor,
        source: Source,
        position: Tensor | None = None,
        language: Tensor | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """The states (B, T, D) that say what comes behind each of the pieces ``given`` (B, T).

        They stand at ``position`` (B, T), None for one after the other, and are in a ``language``
        (B, T), None for the first.
        """
        place = Coordinates.plain(given).place
        coordinates = Coordinates(place, position, language=language)
        own = None if noise is None else noise.within(NOISE)
        return self(given, coordinates, noise=own, source=source)
