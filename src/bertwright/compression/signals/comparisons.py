"""All that is heard of a teacher at once, and how it weighs."""

from collections.abc import Sequence

from torch import nn

from bertwright.compression.signals.signal import Comparison, Heard, Signal, Sizes
from bertwright.encoder.choice import EncoderChoice
from bertwright.objectives.objective import Loss


class Comparisons(nn.Module):
    """The comparisons of several signals, in their order, by names: the kind, and a number from the
    second of a kind on.

    Attributes:
        sites: what they listen to in the student; ``other_sites`` in the teacher.
        hears_outputs: whether they compare what the two answer.

    Errors: UserError where a signal cannot compare the two encoders.
    """

    def __init__(
        self, signals: Sequence[Signal], student: EncoderChoice, teacher: EncoderChoice
    ) -> None:
        super().__init__()
        self._named: dict[str, tuple[Signal, Comparison]] = {}
        for number, signal in enumerate(signals):
            kind = signal.own_kind()
            before = sum(other.own_kind() == kind for other in signals[:number])
            name = f"{kind} {before + 1}" if before else kind
            self._named[name] = signal, signal.between(student, teacher)
        each = [comparison for _, comparison in self._named.values()]
        self.each = nn.ModuleList(each)
        self.sites = [site for own in each for site in own.sites]
        self.other_sites = [site for own in each for site in own.other_sites]
        self.hears_outputs = any(own.hears_outputs for own in each)

    def begin(self, seed: int) -> None:
        """Draw what is trained anew."""
        for _, comparison in self._named.values():
            comparison.begin(seed)

    def weights(self, progress: float) -> dict[str, float]:
        """In the total loss."""
        return {name: signal.weight.at(progress) for name, (signal, _) in self._named.items()}

    def counts(self, sizes: Sizes) -> dict[str, float]:
        """What the losses over rows of these sizes are divided by."""
        return {name: comparison.count(sizes) for name, (_, comparison) in self._named.items()}

    def losses(self, heard: Heard, sizes: Sizes) -> dict[str, Loss]:
        """Of rows of these sizes."""
        none = heard.outputs.new_zeros(())
        return {
            name: Loss(comparison(heard), comparison.count(sizes), none)
            for name, (_, comparison) in self._named.items()
        }
