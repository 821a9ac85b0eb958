"""Denoising: the encoder reads a damaged text, the decoder says what is missing, or all of it
(Lewis et al. 2020; Raffel et al. 2020; Song et al. 2019)."""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from torch import Tensor

from bertwright.encoder.stream import Source
from bertwright.examples.coordinates import Rows
from bertwright.examples.noising import Noising, Sentinels
from bertwright.examples.questions import Question

from .objective import Asked, Asking, Objective, Reading


class Denoising(Objective):
    """Damage a text, and ask a decoder for pieces that undo it, each given those before it.

    ``noising`` says what the encoder is shown and what the decoder is asked for.
    Relations: ``masked`` asks the encoder itself, at the places of what it hides.
    """

    kind: Literal["denoising"] = "denoising"
    noising: Noising = Sentinels()

    names_pieces: ClassVar[bool] = True
    decodes: ClassVar[bool] = True
    hides: ClassVar[bool] = True

    @property
    def rearranges(self) -> bool:
        return self.noising.rearranges

    def ask(self, rows: Rows, asking: Asking) -> tuple[Rows, Question]:
        draw = asking.draw.named("denoising")
        return self.noising.noised(rows, asking.vocabulary, draw, asking.progress)

    def per_place(self, length: int) -> float:
        return self.noising.targets(length) / length

    def decoded_positions(self, length: int) -> int:
        return self.noising.positions(length)

    def name_beside(
        self, beside: Mapping[str, int], piece: Callable[[int], str]
    ) -> dict[str, int | str]:
        named = {name: value for name, value in beside.items() if name != "language" or value > 0}
        return {**named, "given": piece(beside["given"])}

    def states(self, asked: Asked, reading: Reading) -> Tensor:
        """Those (M, D) of the decoder, which is given the pieces before each that is asked."""
        assert reading.decoder is not None, "a recipe that decodes has a decoder"
        assert reading.coordinates is not None, "who reads for a decoder says where text stands"
        rows = len(reading.states)
        by_row = {name: values.view(rows, -1) for name, values in asked.beside.items()}
        source = Source(reading.states, reading.coordinates)
        states = reading.decoder.states(
            by_row["given"], source, by_row.get("position"), by_row.get("language"), reading.noise
        )
        return states.flatten(0, 1)
