"""Build a fine-tuning run from a model, examples and settings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bertwright.core.errors import UserError
from bertwright.encoder.added_parameters import added_parameters
from bertwright.models.saving import build_empty
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.tasks.adapters import FrozenEncoderConfig
from bertwright.tasks.data.lazy_examples import encode_task
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.batching.used_vocabulary import UsedVocabulary
from bertwright.tasks.finetuning.checks.batching import check_packing
from bertwright.tasks.finetuning.checks.generation import check_generation
from bertwright.tasks.finetuning.checks.heads import check_heads
from bertwright.tasks.finetuning.checks.retrieval import check_retrieval
from bertwright.tasks.finetuning.config import FineTuningConfig, with_label_smoothing
from bertwright.tasks.finetuning.losses import check_language_model
from bertwright.tasks.finetuning.run import FineTuningRun, ReporterFactory, no_reporter
from bertwright.tasks.finetuning.task_losses import TaskDistillationLoss
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.heads.default_head import (
    HeadOverrides,
    frozen_input_kind,
    has_pairs,
    resolve_head,
)
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.heads.linear_solver import is_linear
from bertwright.tasks.heads.task_visibility import (
    with_global_question_attention,
    with_siamese_visibility,
)
from bertwright.tasks.multi_task_model import MultiTaskModel
from bertwright.tasks.outputs.classification import ClassificationOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadSpec


class TaskDistillation(Protocol):
    """A factory of a distillation loss, given the student."""

    def build_loss(
        self,
        student: MultiTaskModel,
        encoded_task: EncodedTask,
        used_vocabulary: UsedVocabulary | None,
    ) -> TaskDistillationLoss:
        """Build the loss for a student of a task; UserError if the teacher does not fit.

        ``used_vocabulary`` is the reduced vocabulary of the student's token ids, if any.
        """
        ...


def build_run(
    model: TextModel,
    task_data: Sequence[tuple[Task, Examples, Examples]],
    config: FineTuningConfig,
    make_reporter: ReporterFactory = no_reporter,
    output: Path | str | None = None,
    distillation: TaskDistillation | None = None,
) -> FineTuningRun:
    """Return the run that all seeds share."""
    tasks, is_distilled = [task for task, _, _ in task_data], distillation is not None
    # The recipe of a fine-tuned model's encoder has no objectives, the model's recipe has.
    recipe = model.task_model.recipe if isinstance(model, FineTunedModel) else model.model.recipe
    dropout = config.dropout_for(recipe)
    recipe = dropout.apply_to(recipe)
    recipe = with_global_question_attention(recipe, [task.output_type for task in tasks])
    _check_compatible(model, config, task_data)
    check_generation(model.model, config, tasks, is_distilled)
    recipe = with_label_smoothing(recipe, config.label_smoothing)
    check_retrieval(config, tasks, is_distilled)
    check_packing(config, recipe.encoder, is_distilled)
    heads = _resolve_heads(model, recipe, config, task_data)
    if is_siamese := _are_siamese(heads):
        recipe = with_siamese_visibility(recipe)
    example_encoder = ExampleEncoder.from_recipe(
        recipe, model.tokenizer, model.model.encoder.max_length, config.max_length, is_siamese
    )
    check_heads(heads, task_data, config, recipe.output, example_encoder.max_length)
    if config.language_model and (problem := check_language_model(model, config, heads)):
        raise UserError(problem)
    encoded_tasks = [
        encode_task(task, train, dev, example_encoder) for task, train, dev in task_data
    ]
    head_specs = [
        HeadSpec(head, encoded.output_decoder.num_outputs, encoded.task.output_type.kind_name())
        for head, encoded in zip(heads, encoded_tasks, strict=True)
    ]
    used_vocabulary = _used_vocabulary(model, config, encoded_tasks, head_specs)
    multi_task_model = build_empty(
        MultiTaskModel,
        recipe,
        model.model.vocab_size,
        head_specs,
        config.adaptation,
        dropout.head,
        config.language_model > 0,
        None if used_vocabulary is None else len(used_vocabulary.used_token_ids),
        config.truncated_backprop,
        config.batching == "packed",
    )
    _check_trainable(multi_task_model, config)
    has_lbfgs_solver = _solves_heads(config, multi_task_model, encoded_tasks)
    precision = config.precision or default_precision(model.device)
    distillation_loss = None
    if distillation is not None:
        distillation_loss = _build_distillation_loss(
            distillation, multi_task_model, encoded_tasks, used_vocabulary, config
        )
    return FineTuningRun(
        source=model,
        model=multi_task_model.to(model.device),
        encoded_tasks=encoded_tasks,
        max_length=example_encoder.max_length,
        config=config,
        precision="float32" if has_lbfgs_solver else precision,
        has_lbfgs_solver=has_lbfgs_solver,
        distillation_loss=distillation_loss,
        folder=Path() if output is None else Path(output).parent,
        used_vocabulary=used_vocabulary,
        make_reporter=make_reporter,
    )


def _resolve_heads(
    model: TextModel,
    recipe: Recipe,
    config: FineTuningConfig,
    task_data: Sequence[tuple[Task, Examples, Examples]],
) -> list[HeadConfig]:
    """Return the head of every task."""
    frozen_inputs = frozen_input_kind(
        config.adaptation, [(task.output_type, train) for task, train, _ in task_data]
    )
    return [
        resolve_head(
            _head_settings(config, task, train),
            recipe,
            task.output_type,
            model if isinstance(model, FineTunedModel) else None,
            frozen_inputs,
            config.adaptation.adds_features,
        )
        for task, train, _ in task_data
    ]


def _used_vocabulary(
    model: TextModel,
    config: FineTuningConfig,
    encoded_tasks: Sequence[EncodedTask],
    head_specs: Sequence[HeadSpec],
) -> UsedVocabulary | None:
    """Return the reduced vocabulary of the tasks; None if the whole one is trained or predicted."""
    uses_lm_head = config.language_model > 0 or any(spec.uses_lm_head for spec in head_specs)
    if uses_lm_head or config.adaptation.is_parameter_efficient:
        return None
    return UsedVocabulary.from_tasks(
        model.model.encoder, encoded_tasks, model.tokenizer.special_tokens.pad
    )


def _head_settings(
    config: FineTuningConfig, task: Task, train: Examples
) -> HeadConfig | HeadOverrides | None:
    """Return the settings of a task's head."""
    is_pair_classification = isinstance(task.output_type, ClassificationOutput) and has_pairs(train)
    if config.pair_head is not None and is_pair_classification:
        return config.pair_head
    return config.head


def _check_compatible(
    model: TextModel, config: FineTuningConfig, task_data: Sequence[tuple[Task, Examples, Examples]]
) -> None:
    """Raise UserError for a model and settings that do not fit together."""
    model.require_text_tokenizer("finetune")
    recipe, max_length = model.model.recipe, model.model.encoder.max_length
    if problem := config.adaptation.check(recipe.encoder):
        raise UserError(problem)
    if added := added_parameters(model.model.encoder, recipe.encoder, model.model.vocab_size):
        raise UserError(
            f"this model has parameters beyond its recipe ({added[0]}), which further fine-tuning "
            f"would lose: fine-tune the model that it was trained from"
        )
    if max_length is not None and config.max_length is not None and config.max_length > max_length:
        raise UserError(
            f"max_length {config.max_length}: this encoder takes at most {max_length} tokens"
        )
    if config.truncated_backprop is not None:
        if problem := config.truncated_backprop.check(recipe.encoder):
            raise UserError(problem)
        if config.adaptation.has_frozen_encoder:
            raise UserError("truncated_backprop: the encoder is frozen: choose another adaptation")
    if config.perturbation is None:
        return
    if config.adaptation.has_frozen_encoder:
        raise UserError("perturbation: the encoder is frozen: choose another adaptation")
    for task, _, _ in task_data:
        if problem := config.perturbation.check(task.output_type.kind_name()):
            raise UserError(problem)


def _solves_heads(
    config: FineTuningConfig, model: MultiTaskModel, encoded_tasks: Sequence[EncodedTask]
) -> bool:
    """Return whether heads are fitted to convergence instead of trained in steps."""
    adaptation = config.adaptation
    if (
        not isinstance(adaptation, FrozenEncoderConfig)
        or adaptation.solver == "adamw"
        or not config.epochs
    ):
        return False
    are_linear = all(
        is_linear(model.head_of(index)) and encoded.task.output_type.has_convex_loss
        for index, encoded in enumerate(encoded_tasks)
    )
    step_settings = config.explicit_step_settings
    if adaptation.solver == "lbfgs" and step_settings:
        raise UserError(
            f"adaptation.solver: lbfgs takes no steps, so {step_settings[0]} has no effect: choose "
            f"adamw, or leave it out"
        )
    if adaptation.solver == "lbfgs" and not are_linear:
        raise UserError(
            "adaptation.solver: lbfgs fits linear heads with a convex loss: choose "
            "head.kind=plain, or adamw"
        )
    return are_linear and not step_settings


def _are_siamese(head_configs: Sequence[HeadConfig]) -> bool:
    """Return whether the heads are siamese; UserError if only some are."""
    is_siamese = {config.pooling == "siamese" for config in head_configs}
    if len(is_siamese) > 1:
        raise UserError("head.pooling: siamese must be used for all tasks or none: choose another")
    return True in is_siamese


def _check_trainable(model: MultiTaskModel, config: FineTuningConfig) -> None:
    """Raise UserError for a model without trainable parameters, or that chunks cannot train."""
    parametrisation = model.parametrisation
    if config.truncated_backprop and parametrisation and parametrisation.has_inner_hooks:
        raise UserError(
            "truncated_backprop reads a text in chunks, this adaptation changes values of whole "
            "texts: leave one of them out"
        )
    if not config.epochs or not model.adaptation.has_frozen_encoder:
        return
    for index, spec in enumerate(model.head_specs):
        if next(model.head_of(index).parameters(), None) is None:
            raise UserError(
                f"nothing is trained: the encoder is frozen, and the head of output type "
                f"{spec.output_kind} has no parameters: choose another adaptation, such as lora or "
                f"full, or epochs=0 to evaluate it untrained"
            )


def _build_distillation_loss(
    distillation: TaskDistillation,
    model: MultiTaskModel,
    encoded_tasks: Sequence[EncodedTask],
    used_vocabulary: UsedVocabulary | None,
    config: FineTuningConfig,
) -> TaskDistillationLoss:
    """Build the distillation loss, as a module of the model."""
    if config.adaptation.has_frozen_encoder or config.perturbation or config.language_model:
        raise UserError(
            "distillation does not work with a frozen encoder, perturbation or language_model: "
            "leave these out"
        )
    if len(encoded_tasks) > 1:
        raise UserError("a teacher knows a single task: distil one task at a time")
    loss = distillation.build_loss(model, encoded_tasks[0], used_vocabulary)
    model.distillation_loss = loss
    return loss
