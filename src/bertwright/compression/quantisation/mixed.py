"""How many bits each block is left: more where the loss is sharp (Shen et al. 2020)."""

from collections.abc import Sequence

from pydantic import Field

from bertwright.axes import Settings
from bertwright.compression.quantisation.quantised import Bits
from bertwright.compression.quantisation.sharpness import Sharpness, sharpness
from bertwright.randomness import sample
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Examples


class BySharpness(Settings):
    """The sharpest ``share`` of the blocks have ``high`` bits, the others ``low``; how sharp they
    are is found on so many ``examples``, in ``subsets``."""

    low: Bits = 2
    high: Bits = 3
    share: float = Field(default=0.5, ge=0, le=1)
    examples: int = Field(default=128, ge=1, le=1 << 20)
    subsets: int = Field(default=4, ge=1, le=65_536)

    def of(self, model: FineTuned, examples: Examples) -> tuple[int, ...]:
        """One number for each block of a model that has learned the task."""
        found = sharpness(model, sample(examples, self.examples), self.subsets)
        return self.among(found, len(model.net.encoder.blocks))

    def among(self, found: Sequence[Sharpness], num_blocks: int) -> tuple[int, ...]:
        """By what was found of some of so many blocks; the others have what the one before has."""
        sharpest = sorted(found, key=lambda each: -each.omega)
        high = {each.block for each in sharpest[: round(self.share * len(found))]}
        known = {each.block for each in found}
        bits: list[int] = []
        for block in range(num_blocks):
            own = self.high if block in high else self.low
            bits.append(own if block in known or not bits else bits[-1])
        return tuple(bits)
