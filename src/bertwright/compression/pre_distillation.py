"""A pre-trained model teaches a smaller one that learns from the same text (Sanh et al. 2019; Jiao
et al. 2020)."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor, nn

from bertwright.compression.signals import Comparison, Heard, Signal, Sizes, compared_by
from bertwright.errors import UserError
from bertwright.examples.batches import Batch
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Loss, visibility_of
from bertwright.schedules import Schedule
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place
from bertwright.training.teaching import PieceLesson, PieceTeaching

STATES = "output"
"""The states by which pieces are named."""


@dataclass(frozen=True)
class PreDistillation:
    """A teacher, and what of it is heard; ``own`` multiplies the weights of what the recipe of the
    student asks.

    Outputs are compared where pieces are hidden, and only there; the teacher reads the text with
    the same pieces hidden.
    """

    teacher: TextModel
    signals: Sequence[Signal]
    own: Schedule

    @property
    def about(self) -> str:
        """What tells it from another."""
        model, said = self.teacher.model, [signal.model_dump_json() for signal in self.signals]
        weights = sha256(model.embedding.detach().float().cpu().numpy().tobytes()).hexdigest()
        return " ".join([model.recipe.name, weights[:16], *said, self.own.model_dump_json()])

    def teaching(self, student: Model, data: Data) -> PieceTeaching:
        """The losses for a student.

        Errors: UserError where the two have other pieces, or do not fill hidden places.
        """
        if self.teacher.tokenizer.hash != data.tokenizer.hash:
            raise UserError(
                f"{data.path} was prepared with another tokenizer than that of the teacher: "
                f"prepare the text with its tokenizer"
            )
        objectives = student.recipe.objectives
        masked = [name for name, own in objectives.items() if type(own) is Masked]
        rewrites = any(own.rewrites for own in objectives.values())
        if len(masked) != 1 or rewrites or self.teacher.model.output is None:
            raise UserError(
                "a teacher that fills hidden places teaches this alone: both need the objective "
                "masked, and none that rewrites"
            )
        if student.recipe.phases[0].depth < 1.0:
            raise UserError("a stack that grows has no teacher: set the depth of all phases to 1")
        encoders = student.recipe.encoder, self.teacher.model.recipe.encoder
        return _PreDistilling(self, student, masked[0], compared_by(self.signals, *encoders))


class _PreDistilling(PieceTeaching):
    """The losses of a teacher, at places that one of the objectives asks for."""

    def __init__(
        self,
        distillation: PreDistillation,
        student: Model,
        asked: str,
        compared: Mapping[str, Comparison],
    ) -> None:
        super().__init__()
        self._asked, self._compared, self._own = asked, dict(compared), distillation.own
        self._weights = dict(zip(compared, distillation.signals, strict=True))
        self.about = distillation.about
        self.comparisons = nn.ModuleList(compared.values())
        teacher = deepcopy(distillation.teacher.model).requires_grad_(False).eval()
        if student.recipe.precision == "bf16":
            teacher = teacher.to(torch.bfloat16)
        # In a tuple, so that their parameters are not taken for its own.
        self._student_and_teacher = student, teacher
        self.sites = [STATES, *(site for each in compared.values() for site in each.sites)]
        self._other_sites = [s for each in compared.values() for s in each.other_sites]

    def begin(self, seed: int) -> None:
        for comparison in self._compared.values():
            comparison.begin(seed)

    def share(self, place: Place) -> float:
        return self._own.at(place.progress)

    def weights(self, place: Place) -> dict[str, float]:
        return {name: s.weight.at(place.progress) for name, s in self._weights.items()}

    def counts(self, step: StepBatch[Batch]) -> dict[str, float]:
        rows = sum(len(batch.pieces) for batch in step.micro_batches)
        sizes = Sizes(float(rows), float(step.num_tokens), step.counts[self._asked])
        return {name: each.count(sizes) for name, each in self._compared.items()}

    def losses(self, lesson: PieceLesson) -> dict[str, Loss]:
        student, teacher = self._student_and_teacher
        batch, asked = lesson.batch, lesson.batch.questions[self._asked]
        rule = teacher.encoder.rule & visibility_of(list(lesson.objectives.values()))
        with torch.no_grad(), teacher.record(STATES, *self._other_sites) as others:
            teacher.encoder(batch.pieces, batch.coordinates, rule)
        document = batch.coordinates.document
        real = (
            torch.ones_like(batch.pieces, dtype=torch.bool) if document is None else document >= 0
        )
        empty = lesson.values[STATES].new_zeros((0, 1), dtype=torch.float32)
        outputs = taught = empty
        if any(each.hears_outputs for each in self._compared.values()):
            weight = asked.weight
            outputs = _named(student, lesson.values[STATES], asked.where)
            taught = _named(teacher, others[STATES], asked.where)
            if weight is not None:
                # A place that does not count is one where the two agree.
                outputs = torch.where((weight > 0)[:, None], outputs, taught)
        heard = Heard(outputs, taught, lesson.values, others, real, lesson.progress)
        sizes = Sizes(float(len(batch.pieces)), float(batch.num_tokens), asked.count)
        none = empty.new_zeros(())
        return {
            name: Loss(each(heard), each.count(sizes), none)
            for name, each in self._compared.items()
        }


def _named(model: Model, states: Tensor, where: Tensor) -> Tensor:
    """The logits (M, V) in float32 at flat places (M,) of states (B, L, D)."""
    return model.logits(states.flatten(0, 1).index_select(0, where)).float()
