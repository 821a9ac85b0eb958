"""Questions that every place answers by itself with one of a few classes."""

from torch import Tensor, nn

from .objective import Asked, Host, Loss, Objective, Reading
from .sentence_relation import class_loss


class PlaceQuestion(Objective):
    """Ask every place for one of a few classes, by a score for each that is linear in its state."""

    def head(self, host: Host) -> nn.Module:
        return nn.Linear(host.choice.width, self.num_choices(host.vocabulary_size))

    def answer(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Loss:
        return class_loss(self.logits(asked, reading, head), asked)

    def logits(self, asked: Asked, reading: Reading, head: nn.Module | None) -> Tensor:
        assert head is not None, "it has a head"
        return head(reading.at(asked.where)).float()
