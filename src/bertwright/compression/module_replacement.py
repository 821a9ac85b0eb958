"""Replace a model block by block during training (BERT-of-Theseus, Xu et al. 2020).

Each student block replaces an equal number of teacher blocks: at random in every step, with rising
probability, and always at the end. Only the student blocks are trained, on the labels alone;
everything outside of the blocks is taken from the teacher.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from bertwright.core.errors import UserError
from bertwright.core.schedules import Schedule
from bertwright.encoder.encoder import get_blocks
from bertwright.encoder.layer_stack import LayerStack, StackContext
from bertwright.modules.dropout_rng import uniform_for_step
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.batches import TaskBatch
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.batching.used_vocabulary import UsedVocabulary
from bertwright.tasks.heads.head import parameter_shapes
from bertwright.tasks.multi_task_model import MultiTaskModel
from bertwright.training.callbacks.callback import Callback
from bertwright.training.clock import Progress
from bertwright.training.distillation_loss import DistillationLoss

REPLACEMENT_STREAM = 66
"""Random stream for the choice between student and teacher blocks."""


def require_divisible_layers(num_teacher_layers: int, num_student_layers: int) -> None:
    """Raise UserError unless every student layer replaces the same number of teacher layers."""
    if not num_student_layers or num_teacher_layers % num_student_layers:
        raise UserError(
            f"the teacher's {num_teacher_layers} blocks cannot be divided by "
            f"{num_student_layers}: choose --layers accordingly"
        )


@dataclass(frozen=True)
class ModuleReplacement:
    """A factory of module replacement, with a fine-tuned teacher and a replacement probability."""

    predecessor: FineTunedModel
    probability: Schedule

    def build_loss(
        self,
        student: MultiTaskModel,
        encoded_task: EncodedTask,
        used_vocabulary: UsedVocabulary | None,
    ) -> "_ModuleReplacementLoss":
        """Insert the teacher's blocks into a student that consists of the teacher's layers."""
        encoder = student.encoder
        num_teacher_blocks = len(self.predecessor.task_model.encoder.blocks)
        is_plain = type(encoder.layer_stack) is LayerStack and not encoder.needs_sublayer_outputs
        if num_teacher_blocks % len(encoder.blocks) or not is_plain:
            raise UserError(
                "module replacement needs a single task and a plain stack of blocks without "
                "sublayer outputs: choose another method"
            )
        return _ModuleReplacementLoss(self, student, encoded_task)


class _ModuleReplacementLoss(DistillationLoss[TaskBatch, TaskBatch]):
    """A distillation without losses; it replaces student blocks by teacher blocks."""

    def __init__(
        self, replacement: ModuleReplacement, student: MultiTaskModel, part: EncodedTask
    ) -> None:
        super().__init__()
        teacher = replacement.predecessor.task_model
        layer_stack = ReplaceableLayerStack(
            get_blocks(teacher.encoder), len(student.encoder.blocks)
        )
        # In lists, so that their parameters are not registered with this module.
        self._student, self._head, self._part = [student], [teacher.head], part
        self.callbacks = [_ReplacementSchedule(layer_stack, replacement.probability)]
        student.encoder.layer_stack = layer_stack

    def init(self, seed: int) -> None:
        student = self._student[0]
        student_head, teacher_head = (
            (parameter_shapes(head), head.config.pooling, head.config.layers)
            for head in (student.head_of(0), self._head[0])
        )
        if student_head != teacher_head:
            raise UserError(
                "module replacement needs the head of the fine-tuned model: leave head out"
            )
        student.head_of(0).load_state_dict(self._head[0].state_dict())
        self._part.output_decoder.unfold_from(student.head_of(0).classifier)
        for frozen in (student.encoder.embeddings, student.encoder.norm, student.heads):
            frozen.requires_grad_(False)


class _ReplacementSchedule(Callback):
    """A callback that sets the replacement probability before every step."""

    name = "replacement"

    def __init__(self, layer_stack: "ReplaceableLayerStack", probability: Schedule) -> None:
        self._layer_stack, self._probability = layer_stack, probability

    def before_step(self, progress: Progress) -> None:
        self._layer_stack.probability = min(max(self._probability.at(progress.fraction), 0.0), 1.0)


class ReplaceableLayerStack(LayerStack):
    """A layer stack that runs teacher blocks in training, with probability 1 - ``probability``.

    Each student block replaces the same number of teacher blocks. One random number per step and
    block, a function of the seed, applies to all sequences of the step.
    """

    def __init__(
        self, teacher_blocks: Sequence[nn.Module], num_student_blocks: int, probability: float = 1.0
    ) -> None:
        super().__init__()
        per_block = len(teacher_blocks) // num_student_blocks
        self.probability = probability
        # In a tuple, so that their parameters are not registered with this module.
        self._teacher_blocks = tuple(
            deepcopy(list(teacher_blocks[n * per_block : (n + 1) * per_block]))
            for n in range(num_student_blocks)
        )

    @property
    def teacher_blocks(self) -> list[nn.Module]:
        """The teacher's blocks in order."""
        return [block for part in self._teacher_blocks for block in part]

    def forward(self, x: Tensor, blocks: Sequence[int], context: StackContext) -> Tensor:
        dropout_rng = context.dropout_rng
        if dropout_rng is None:
            return super().forward(x, blocks, context)
        indices = torch.tensor(blocks, device=dropout_rng.seed.device)
        numbers: list[float] = uniform_for_step(dropout_rng, indices, REPLACEMENT_STREAM).tolist()
        for index, number in zip(blocks, numbers, strict=True):
            call = context.get_call(index)
            if number < self.probability:
                x = call(x)
                continue
            *inner, last = self._teacher_blocks[index]
            last_context = replace(call.context, dropout_rng=None)
            inner_call = replace(call, context=replace(last_context, output_positions=None))
            for block in inner:
                x = replace(inner_call, block=block.to(x.dtype))(x)
            x = replace(call, block=last.to(x.dtype), context=last_context)(x)
        return x
