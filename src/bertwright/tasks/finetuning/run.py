"""Fine-tuning with one seed, from a pretrained encoder to its best epoch."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from bertwright.core.config import Precision
from bertwright.core.errors import UserError
from bertwright.core.schedules import WarmupSchedule
from bertwright.models.text_model import TextModel
from bertwright.modules.parameter_roles import (
    get_parameter_roles,
    num_parameter_levels,
    parameter_levels,
)
from bertwright.optimisers.adam import AdamWConfig
from bertwright.optimisers.master_parameters import MasterParameters
from bertwright.runtime.compiler import toolchain_hash
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.batches import TASK_LOSS, TaskBatch, TaskBatchSource
from bertwright.tasks.finetuning.batching.encoded_task import (
    EncodedTask,
    TaskSchedule,
    batch_samplers,
)
from bertwright.tasks.finetuning.batching.used_vocabulary import TOKEN_TABLE, UsedVocabulary
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.evaluator import BestEpoch, EpochReport, Evaluator
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.finetuning.losses import NEXT_TOKENS
from bertwright.tasks.finetuning.task_losses import PENALTY, TaskDistillationLoss, TaskLosses
from bertwright.tasks.heads.head import TaskHead, init_head, warm_start
from bertwright.tasks.heads.linear_solver import LinearFit, fit_linear_head
from bertwright.tasks.multi_task_model import MultiTaskModel
from bertwright.training.callbacks.callback import Callback
from bertwright.training.callbacks.unfreezing import UnfreezingCallback
from bertwright.training.clock import Progress, TrainingClock, every_n_steps
from bertwright.training.compilation.agreement_cache import AgreementCache
from bertwright.training.compilation.callback import require_agreement
from bertwright.training.distillation_loss import DISTILLATION_PREFIX, combined_loss_weights
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob, train
from bertwright.training.process_group import ProcessGroup
from bertwright.training.step_batch import StepBatch

ReporterFactory = Callable[[int, TrainingClock], Sequence[Callback]]
"""Builds the callbacks that report the run of a seed, from its clock."""


def no_reporter(seed: int, clock: TrainingClock) -> Sequence[Callback]:
    """Report nothing."""
    return ()


@dataclass(frozen=True)
class FineTuningRun:
    """A fine-tuning run; ``model`` is initialised again for every seed.

    ``precision`` and ``max_length`` replace the values in ``config``. With ``has_lbfgs_solver``,
    linear heads are fitted to convergence instead of trained in steps, and ``linear_fits`` collects
    the results by task. ``used_vocabulary`` is the reduced vocabulary of ``model``; None for the
    whole. ``callbacks`` run within steps; ``epoch_reports`` collects the results of every epoch.
    """

    source: TextModel
    model: MultiTaskModel
    encoded_tasks: Sequence[EncodedTask]
    max_length: int
    config: FineTuningConfig
    precision: Precision
    distillation_loss: TaskDistillationLoss | None
    folder: Path
    used_vocabulary: UsedVocabulary | None
    make_reporter: ReporterFactory
    has_lbfgs_solver: bool = False
    callbacks: Sequence[Callback] = ()
    epoch_reports: list[EpochReport] = field(default_factory=list[EpochReport])
    linear_fits: list[Mapping[str, LinearFit]] = field(
        default_factory=list[Mapping[str, LinearFit]]
    )
    frozen_features: list[FrozenFeatures] = field(default_factory=list[FrozenFeatures])
    """Features of a frozen encoder, shared by all seeds; filled on first use."""

    @property
    def learning_rate(self) -> float:
        """The learning rate of gradient steps."""
        return self.config.learning_rate_for(self.model.recipe)

    def run_seed(
        self, seed: int, order_seed: int | None = None, is_compiled: bool = False
    ) -> BestEpoch:
        """Train with one seed, which determines head initialisation, data order and dropout.

        ``order_seed``, if given, determines the order of the examples instead. Errors: UserError if
        no parameter would be trained.
        """
        config = self.config
        samplers = batch_samplers(
            self.encoded_tasks,
            config.batch_size,
            seed if order_seed is None else order_seed,
            config.batching,
        )
        schedule = TaskSchedule.from_samplers(samplers, config.task_sampling_power, seed)
        has_pretrained_input = self.init_parameters(seed)
        if config.epochs and not self.trained_fraction():
            raise UserError(
                "nothing is trained: the head has no parameters, and the adaptation trains none of "
                "the encoder: choose another adaptation, or epochs=0 to evaluate it untrained"
            )
        features = None
        if self.model.adaptation.has_frozen_encoder:
            if not self.frozen_features:
                self.frozen_features.append(
                    FrozenFeatures(self.source, self.model, self.encoded_tasks, self.precision)
                )
            features = self.frozen_features[0]
            self._standardise(features, has_pretrained_input)
            if self.has_lbfgs_solver:
                self._fit_heads(features, seed)
        parameters = MasterParameters(
            self.model, get_parameter_roles(self.model), self.precision, self.source.device
        )
        clock = TrainingClock(config.epochs * schedule.steps_per_epoch)
        evaluator = Evaluator(self, parameters, seed, clock, features)
        if self.has_lbfgs_solver:
            evaluator.losses += [fit.loss for fit in self.linear_fits[-1].values()]
        if not config.epochs or self.has_lbfgs_solver:
            evaluator.evaluate(clock.progress(0))
        else:
            batches = TaskBatchSource(
                self.source,
                self.encoded_tasks,
                samplers,
                schedule,
                self.used_vocabulary,
                config.language_model > 0,
                config.batching == "packed",
            )
            job = self._training_job(evaluator, batches)
            if is_compiled:
                job.compile()
                require_agreement(
                    job, clock.progress(0), self._step_fingerprint(), AgreementCache()
                )
            train(job)
        parameters.release()
        assert evaluator.best is not None, "an epoch ends with an evaluation"
        return evaluator.best

    def _training_job(
        self, evaluator: Evaluator, batches: TaskBatchSource
    ) -> TrainingJob[TaskBatch]:
        """Return the job that trains the parameters of an evaluator."""
        config, schedule = self.config, batches.schedule
        parameters, clock, seed = evaluator.parameters, evaluator.clock, evaluator.seed
        optimiser = AdamWConfig(
            learning_rate=self.learning_rate,
            weight_decay=config.weight_decay,
            beta_1=config.beta_1,
            beta_2=config.beta_2,
            layer_decay=config.adaptation.layerwise_decay,
            bias_correction=config.bias_correction,
        ).build(parameters)
        module_callbacks = [
            callback
            for module in (self.model.parametrisation, self.distillation_loss)
            for callback in (() if module is None else module.callbacks)
        ]
        return TrainingJob(
            parameters=parameters,
            optimiser=optimiser,
            callbacks=[
                UnfreezingCallback(parameters, optimiser, self._trainable_levels(schedule)),
                *self.callbacks,
                *module_callbacks,
                evaluator,
                *self.make_reporter(seed, clock),
            ],
            get_batch=partial(self._get_batch, batches),
            compute_losses=TaskLosses(self, seed, evaluator.frozen_features),
            clock=clock,
            learning_rate_factor=(config.schedule or WarmupSchedule(warmup=config.warmup)).at,
            loss_weights=self._loss_weights,
            gradient_clipping=GradientClipping(config.max_grad_norm),
            process_group=ProcessGroup(device=self.source.device),
            evaluate=evaluator.evaluate,
            evaluation_trigger=every_n_steps(schedule.steps_per_epoch),
            dump_folder=self.folder,
            remedy="lower learning_rate or raise warmup, and start again",
        )

    def _step_fingerprint(self) -> str:
        """Return a key that identifies the compiled graph of this run and its compiler."""
        recipe = self.model.recipe.model_dump(mode="json", include={"encoder"})
        adaptation = repr(self.model.adaptation)
        return toolchain_hash(
            "fine-tuning", json.dumps(recipe), adaptation, self.precision, str(self.max_length)
        )

    def trained_fraction(self) -> float:
        """Return the fraction of the parameters trained in the last epoch."""
        roles = get_parameter_roles(self.model)
        levels, parameters = parameter_levels(roles), dict(self.model.named_parameters())
        last_epoch = max(self.config.epochs - 1, 0)
        num_levels = self.model.adaptation.num_trainable_levels(last_epoch, self.config.epochs)
        min_level = 0 if num_levels is None else num_parameter_levels(roles) - num_levels
        sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        sizes |= {name: 0 for name in sizes if name.startswith(DISTILLATION_PREFIX)}
        if self.used_vocabulary is not None:
            sizes[f"encoder.{TOKEN_TABLE}"] = self.used_vocabulary.full_table.numel()
        trained = sum(
            sizes[n] for n, p in parameters.items() if p.requires_grad and levels[n] >= min_level
        )
        return trained / sum(sizes.values())

    def full_state(self, parameters: MasterParameters) -> Mapping[str, Tensor]:
        """Return the parameters by name, with the whole embedding table."""
        state = parameters.state_dict()
        if self.used_vocabulary is None:
            return state
        return self.used_vocabulary.expand(state, "encoder.")

    def init_parameters(self, seed: int) -> list[bool]:
        """Initialise all parameters; return which heads have pretrained input layers."""
        encoder, state = self.model.encoder, self.source.model.encoder.state_dict()
        if self.used_vocabulary is not None:
            state = self.used_vocabulary.restrict(state)
        encoder.load_state_dict(state, strict=False)
        self.model.adaptation.init_parameters(encoder, self.model.recipe, seed)
        if self.model.lm_head is not None and self.source.model.output is not None:
            self.model.lm_head.load_state_dict(self.source.model.output.state_dict())
        if self.model.decoder is not None and self.source.model.decoder is not None:
            self.model.decoder.load_state_dict(self.source.model.decoder.state_dict())
        if self.model.parametrisation is not None:
            weights = dict(encoder.named_parameters())
            self.model.parametrisation.init_parameters(seed, weights)
        has_pretrained_input = [
            self._init_head(self.model.head_of(index), encoded_task, seed)
            for index, encoded_task in enumerate(self.encoded_tasks)
        ]
        if self.distillation_loss is not None:
            self.distillation_loss.init(seed)
        return has_pretrained_input

    def _init_head(self, head: TaskHead, encoded_task: EncodedTask, seed: int) -> bool:
        """Initialise a head; return whether its input layers are pretrained.

        From a fine-tuned source, the same task takes the whole head, another task the mix and
        trunk.
        """
        source, is_new = self.source, self.model.adaptation.has_reinitialised_blocks
        fine_tuned = source if isinstance(source, FineTunedModel) and not is_new else None
        if fine_tuned is not None and fine_tuned.has_task(encoded_task.task, head):
            head.load_state_dict(fine_tuned.task_model.head.state_dict())
            encoded_task.output_decoder.unfold_from(head.classifier)
            return True
        init_head(head, None if is_new else source.model, seed)
        if head.word_vectors is not None:
            head.word_vectors.init(source.tokenizer, seed)
        encoded_task.output_decoder.init_classifier(head.classifier, source)
        if self.model.lm_head is not None:
            encoded_task.output_decoder.init_lm_head(self.model.lm_head, source)
        return fine_tuned is not None and warm_start(head, fine_tuned.task_model.head)

    def _standardise(
        self, frozen_features: FrozenFeatures, has_pretrained_input: Sequence[bool]
    ) -> None:
        """Standardise the inputs of heads, except of heads initialised from pretraining."""
        for index, spec in enumerate(self.model.head_specs):
            head = self.model.head_of(index)
            if not head.input_projections or spec.output_kind == "cloze":
                continue
            head.standardiser = frozen_features.fit_standardiser(index)
            if has_pretrained_input[index]:
                head.standardiser.unfold_from(head.input_projections)

    def _fit_heads(self, frozen_features: FrozenFeatures, seed: int) -> None:
        self.linear_fits.append(
            {
                encoded_task.task.name: fit_linear_head(
                    self.model.head_of(index),
                    encoded_task,
                    frozen_features.training_features(index),
                    seed,
                )
                for index, encoded_task in enumerate(self.encoded_tasks)
            }
        )

    def _get_batch(self, batches: TaskBatchSource, progress: Progress) -> StepBatch[TaskBatch]:
        step = batches.at(progress)
        if self.distillation_loss is not None:
            step = self.distillation_loss.prepare_step(step, progress)
        if self.model.has_penalty:
            step = replace(step, loss_counts={**step.loss_counts, PENALTY: 1.0})
        return step

    def _loss_weights(self, progress: Progress) -> Mapping[str, float]:
        weights = {TASK_LOSS: 1.0, NEXT_TOKENS: self.config.language_model}
        return combined_loss_weights(weights, self.distillation_loss, progress)

    def _trainable_levels(self, schedule: TaskSchedule) -> Callable[[Progress], int | None]:
        adaptation, epochs = self.model.adaptation, self.config.epochs
        roles = get_parameter_roles(self.model)
        first_level = num_parameter_levels(roles) - max(parameter_levels(roles).values())
        return lambda progress: adaptation.num_trainable_levels(
            progress.step // schedule.steps_per_epoch, epochs, first_level
        )
