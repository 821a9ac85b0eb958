"""A pre-trained model teaches a smaller one that learns from the same text (Sanh et al. 2019; Jiao
et al. 2020; Sun et al. 2020)."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bertwright.compression.lessons.stages import LessonStage, within
from bertwright.compression.lessons.suiting import (
    around,
    identity,
    require_alike,
    require_turns,
    what_hides,
)
from bertwright.compression.signals import Comparisons, Heard, Sizes
from bertwright.errors import UserError
from bertwright.examples.batches import Batch
from bertwright.machine.speed import usual_precision
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss, visibility_of
from bertwright.text.shards import Data
from bertwright.training.batch_source import StepBatch
from bertwright.training.clock import Place
from bertwright.training.teaching import PieceLesson, PieceTeaching

STATES = "output"
"""The states by which pieces are named."""


@dataclass(frozen=True)
class PreDistillation:
    """A teacher, and what of it is heard, stage by stage; ``around`` says whether what is no block
    begins as it is in the teacher.

    The teacher reads the text with the same pieces hidden.
    """

    teacher: TextModel
    stages: Sequence[LessonStage]
    around: bool = False

    @property
    def about(self) -> str:
        """What tells it from another."""
        said = [stage.model_dump_json() for stage in self.stages]
        return " ".join([identity(self.teacher.model), *said, *(["around"] if self.around else [])])

    def teaching(self, student: Model, data: Data) -> PieceTeaching:
        """The losses for a student.

        Errors: UserError where the two have other pieces, or do not fill hidden places, and where
        blocks cannot take turns or begin as they should.
        """
        if self.teacher.tokenizer.hash != data.tokenizer.hash:
            raise UserError(
                f"{data.path} was prepared with another tokenizer than that of the teacher: "
                f"prepare the text with its tokenizer"
            )
        asked = what_hides(student, self.teacher.model)
        encoders = student.recipe.encoder, self.teacher.model.recipe.encoder
        heard = [Comparisons(stage.signals, *encoders) for stage in self.stages]
        for stage, comparisons in zip(self.stages, heard, strict=True):
            if stage.turns is not None:
                require_turns(student, comparisons)
        if self.around:
            require_alike(student, self.teacher.model)
        return _PreDistilling(self, student, asked, heard)


class _PreDistilling(PieceTeaching):
    """The losses of a teacher, at places that one of the objectives asks for."""

    def __init__(
        self,
        distillation: PreDistillation,
        student: Model,
        asked: str,
        heard: Sequence[Comparisons],
    ) -> None:
        super().__init__()
        self.about, self._asked = distillation.about, asked
        self.comparisons, self._heard = nn.ModuleList(heard), list(heard)
        self._stages, self._copies = distillation.stages, distillation.around
        known = distillation.teacher.model
        teacher = deepcopy(known).requires_grad_(False).eval()
        if (student.recipe.precision or usual_precision(distillation.teacher.device)) == "bf16":
            teacher = teacher.to(torch.bfloat16)
        # In a tuple, so that their parameters are not taken for its own.
        self._models = student, teacher, known

    @torch.no_grad()
    def begin(self, seed: int) -> None:
        for comparisons in self._heard:
            comparisons.begin(seed)
        if self._copies:
            student, _, known = self._models
            theirs = dict(known.named_parameters())
            for name, own in around(student).items():
                if name in theirs:
                    own.copy_(theirs[name])

    def sites(self, place: Place) -> Sequence[str]:
        number, _ = self._within(place)
        return _states(self._heard[number]) + self._heard[number].sites

    def share(self, place: Place) -> float:
        number, within = self._within(place)
        return self._stages[number].own.at(within.progress)

    def weights(self, place: Place) -> dict[str, float]:
        number, within = self._within(place)
        return self._heard[number].weights(within.progress)

    def rates(self, place: Place) -> Sequence[float] | None:
        number, within = self._within(place)
        turns, blocks = self._stages[number].turns, len(self._models[0].encoder.blocks)
        return turns and turns.rates(blocks, within.progress, within.middle)

    def prepared(self, step: StepBatch[Batch], place: Place) -> StepBatch[Batch]:
        rows = sum(len(batch.pieces) for batch in step.micro_batches)
        number, _ = self._within(place)
        sizes = self._sizes(number, rows, step.num_tokens, step.counts[self._asked])
        return replace(step, counts={**step.counts, **self._heard[number].counts(sizes)})

    def losses(self, lesson: PieceLesson) -> dict[str, Loss]:
        number, within = self._within(lesson.place)
        comparisons, (student, teacher, _) = self._heard[number], self._models
        batch, asked = lesson.batch, lesson.batch.questions[self._asked]
        rule = teacher.encoder.rule & visibility_of(list(lesson.objectives.values()))
        listened = _states(comparisons) + comparisons.other_sites
        with torch.no_grad(), teacher.record(*listened) as others:
            teacher.encoder(batch.pieces, batch.coordinates, rule)
        document = batch.coordinates.document
        real = (
            torch.ones_like(batch.pieces, dtype=torch.bool) if document is None else document >= 0
        )
        outputs = taught = torch.zeros((0, 1), device=batch.pieces.device)
        if comparisons.hears_outputs:
            everywhere = self._stages[number].places == "all"
            where = real.flatten().nonzero().flatten() if everywhere else asked.where
            outputs = _named(student, lesson.values[STATES], where)
            # A published table may have more rows than there are pieces.
            taught = _named(teacher, others[STATES], where)[:, : student.vocabulary_size]
            if asked.weight is not None and not everywhere:
                # A place that does not count is one where the two agree.
                outputs = torch.where((asked.weight > 0)[:, None], outputs, taught)
        said = outputs, taught, outputs, taught
        heard = Heard(*said, lesson.values, others, real, within.progress)
        sizes = self._sizes(number, len(batch.pieces), batch.num_tokens, asked.count)
        return comparisons.losses(heard, sizes)

    def _sizes(self, stage: int, rows: int, places: int, hidden: float) -> Sizes:
        """What the losses of a stage are sums over, of which so many places are hidden."""
        asked = hidden if self._stages[stage].places == "hidden" else places
        return Sizes(float(rows), float(places), float(asked))

    def _within(self, place: Place) -> tuple[int, Place]:
        return within(self._stages, place)


def _states(comparisons: Comparisons) -> list[str]:
    """What outputs are made of, where they are compared."""
    return [STATES] if comparisons.hears_outputs else []


def _named(model: Model, states: Tensor, where: Tensor) -> Tensor:
    """The logits (M, V) in float32 at flat places (M,) of states (B, L, D)."""
    return model.row_logits(states.flatten(0, 1).index_select(0, where)).float()
