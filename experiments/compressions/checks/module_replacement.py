"""BERT-of-Theseus: blocks that replace those of a fine-tuned model at random, then always."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from bertwright.compression.module_replacement import ReplaceableLayerStack
from bertwright.compression.pruning.layers import prune_layers
from bertwright.core.significance import binomial_interval
from bertwright.encoder.encoder import Encoder
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import FineTuningResult
from experiments.analyses.expecting import ExpectedValue, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import ToyModels

TASK = "inference"
NUM_STEPS, PROBABILITY = 400, 0.3


def run(toy: ToyModels) -> CheckResults:
    """Compare linear and constant replacement with plain fine-tuning."""
    yield from _extreme_probabilities(toy)
    teacher, data = toy.fine_tuned(TASK), toy.task_data(TASK, 2 * toy.size.few_examples)
    linear = toy.compress(teacher, "theseus-linear", task_data=data, layers=2, with_baseline=True)
    constant = toy.compress(teacher, "theseus-constant", task_data=data, layers=2)
    yield from _only_student_blocks_train(teacher, [*linear.runs, *constant.runs])
    for name, result in (("linear", linear), ("constant", constant)):
        yield MeasuredValue(
            f"accuracy, {name}", result.scores, "plain fine-tuning", linear.baseline_scores
        )


def _only_student_blocks_train(
    teacher: FineTunedModel, runs: Sequence[FineTuningResult]
) -> CheckResults:
    """Check that only the student's blocks are trained, not the copied teacher or the rest."""
    original, changed = teacher.task_model.state_dict(), set[str]()
    for run in runs:
        layer_stack = run.run.model.encoder.layer_stack
        assert isinstance(layer_stack, ReplaceableLayerStack)
        for index, block in enumerate(layer_stack.teacher_blocks):
            changed |= _changed_tensors(
                block.state_dict(), original, f"encoder.blocks.{index}.", "teacher."
            )
        changed |= _changed_tensors(run.model.task_model.state_dict(), original)
    blocks = {name for name in changed if name.startswith("encoder.blocks.")}
    yield expect_same("trained weights outside the student's blocks", sorted(changed - blocks), [])
    yield expect_same("trained blocks", sorted({n.split(".")[2] for n in blocks}), ["0", "1"])


def _changed_tensors(
    state: Mapping[str, Tensor], reference: Mapping[str, Tensor], prefix: str = "", label: str = ""
) -> set[str]:
    """Return the names of tensors that differ from the reference."""
    return {
        f"{label}{prefix}{name}"
        for name, tensor in state.items()
        if not tensor.equal(reference[prefix + name].to(tensor))
    }


def _extreme_probabilities(toy: ToyModels) -> CheckResults:
    """Check that the teacher runs at probability 0, the student at 1, and the frequency between."""
    teacher = toy.fine_tuned(TASK)
    student = prune_layers(teacher, range(2))
    encoder, teacher_encoder = student.model.encoder, teacher.task_model.encoder
    token_ids = torch.randint(5, 90, (3, 8), generator=torch.Generator().manual_seed(0))
    rng = DropoutRng.for_step(0, 0, 0, token_ids.device)
    with torch.no_grad():
        expected = {0.0: teacher_encoder(token_ids), 1.0: encoder(token_ids)}
        for probability, expected_states in expected.items():
            encoder.layer_stack = ReplaceableLayerStack(
                list(teacher_encoder.blocks), 2, probability
            )
            states = encoder(token_ids, dropout_rng=rng)
            yield expect_same(
                f"states at probability {probability:g}, bit for bit",
                states.equal(expected_states),
                True,
            )
        yield _replacement_frequency(encoder, list(teacher_encoder.blocks))


def _replacement_frequency(
    encoder: Encoder, teacher_blocks: list[torch.nn.Module]
) -> ExpectedValue:
    runs: list[int] = []

    def count(*_: object) -> None:
        runs.append(1)

    for block in encoder.blocks:
        block.register_forward_hook(count)
    encoder.layer_stack = ReplaceableLayerStack(teacher_blocks, 2, PROBABILITY)
    for step in range(NUM_STEPS):
        rng = DropoutRng.for_step(0, step, 0, torch.device("cpu"))
        encoder(torch.tensor([[5, 6]]), dropout_rng=rng)
    interval = binomial_interval(len(runs), 2 * NUM_STEPS, level=0.999)
    return ExpectedValue(
        "fraction of blocks that were replaced", PROBABILITY, interval.low, interval.high
    )


CHECK = CompressionCheck(
    "C13",
    "theseus",
    "Is a model better replaced block by block than pruned at once?",
    "Xu et al. 2020",
    run,
)
