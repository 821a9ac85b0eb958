"""Fine-tuning with one seed, from a pretrained encoder to its best epoch."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from bertwright.core.config import Precision
from bertwright.core.schedules import WarmupSchedule
from bertwright.models.text_model import TextModel
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.parameter_roles import get_parameter_roles
from bertwright.objectives.objective import Loss
from bertwright.optimisers.adam import AdamWConfig
from bertwright.optimisers.master_parameters import MasterParameters, parameter_levels
from bertwright.runtime.compiler import toolchain_hash
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.batching.batches import (
    OUTPUT_PENALTY,
    TASK_LOSS,
    TaskBatch,
    TaskBatchSource,
)
from bertwright.tasks.finetuning.batching.encoded_task import (
    EncodedTask,
    TaskSchedule,
    batch_samplers,
)
from bertwright.tasks.finetuning.batching.used_vocabulary import TOKEN_TABLE, UsedVocabulary
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.evaluator import BestEpoch, EpochReport, Evaluator
from bertwright.tasks.finetuning.frozen_features import FrozenFeatures
from bertwright.tasks.finetuning.linear_gain import linear_gain_loss
from bertwright.tasks.finetuning.losses import NEXT_TOKENS, next_token_loss
from bertwright.tasks.finetuning.perturbation import ForwardPass
from bertwright.tasks.heads.head import TaskHead, init_head, warm_start
from bertwright.tasks.heads.linear_solver import LinearFit, fit_linear_head
from bertwright.tasks.heads.text_vectors import TextVectorHead
from bertwright.tasks.task_model import MultiTaskModel
from bertwright.training.callbacks.callback import Callback
from bertwright.training.callbacks.unfreezing import UnfreezingCallback
from bertwright.training.clock import Progress, TrainingClock, every_n_steps
from bertwright.training.compilation.agreement_cache import AgreementCache
from bertwright.training.compilation.callback import require_agreement
from bertwright.training.distillation_loss import (
    DISTILLATION_PREFIX,
    DistillationLoss,
    StudentOutputs,
    combined_loss_weights,
)
from bertwright.training.gradient_clipping import GradientClipping
from bertwright.training.loop import TrainingJob, train
from bertwright.training.process_group import ProcessGroup
from bertwright.training.step_batch import StepBatch

PENALTY = "penalty"
"""Name of the loss of penalties on parameters."""

TaskDistillationLoss = DistillationLoss[TaskBatch, TaskBatch]

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

        ``order_seed``, if given, determines the order of the examples instead.
        """
        config, device = self.config, self.source.device
        samplers = batch_samplers(
            self.encoded_tasks,
            config.batch_size,
            seed if order_seed is None else order_seed,
            config.batching,
        )
        schedule = TaskSchedule.from_samplers(samplers, config.task_sampling_power, seed)
        has_pretrained_input = self.init_parameters(seed)
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
            self.model, get_parameter_roles(self.model), self.precision, device
        )
        clock = TrainingClock(config.epochs * schedule.steps_per_epoch)
        evaluator = Evaluator(self, parameters, seed, clock, features)
        if self.has_lbfgs_solver:
            evaluator.losses += [fit.loss for fit in self.linear_fits[-1].values()]
        if not config.epochs or self.has_lbfgs_solver:
            evaluator.evaluate(clock.progress(0))
        else:
            optimiser = AdamWConfig(
                learning_rate=self.learning_rate,
                weight_decay=config.weight_decay,
                beta_1=config.beta_1,
                beta_2=config.beta_2,
                layer_decay=config.adaptation.layerwise_decay,
                bias_correction=config.bias_correction,
            ).build(parameters)
            unfreezing = UnfreezingCallback(parameters, optimiser, self._trainable_levels(schedule))
            module_callbacks = [
                callback
                for module in (self.model.parametrisation, self.distillation_loss)
                for callback in (() if module is None else module.callbacks)
            ]
            batches = TaskBatchSource(
                self.source,
                self.encoded_tasks,
                samplers,
                schedule,
                self.used_vocabulary,
                config.language_model > 0,
                config.batching == "packed",
            )
            job = TrainingJob(
                parameters=parameters,
                optimiser=optimiser,
                callbacks=[
                    unfreezing,
                    *self.callbacks,
                    *module_callbacks,
                    evaluator,
                    *self.make_reporter(seed, clock),
                ],
                get_batch=partial(self._get_batch, batches),
                compute_losses=TaskLosses(self, seed, features),
                clock=clock,
                learning_rate_factor=(config.schedule or WarmupSchedule(warmup=config.warmup)).at,
                loss_weights=self._loss_weights,
                gradient_clipping=GradientClipping(config.max_grad_norm),
                process_group=ProcessGroup(device=device),
                evaluate=evaluator.evaluate,
                evaluation_trigger=every_n_steps(schedule.steps_per_epoch),
                dump_folder=self.folder,
                remedy="lower learning_rate or raise warmup, and start again",
            )
            if is_compiled:
                job.compile()
                require_agreement(
                    job, clock.progress(0), self._step_fingerprint(), AgreementCache()
                )
            train(job)
        parameters.release()
        assert evaluator.best is not None, "an epoch ends with an evaluation"
        return evaluator.best

    def _step_fingerprint(self) -> str:
        """Return a key that identifies the compiled graph of this run and its compiler."""
        recipe = self.model.recipe.model_dump(mode="json", include={"encoder"})
        adaptation = repr(self.model.adaptation)
        return toolchain_hash(
            "fine-tuning", json.dumps(recipe), adaptation, self.precision, str(self.max_length)
        )

    def trained_fraction(self) -> float:
        """Return the fraction of the parameters trained in the last epoch."""
        levels = parameter_levels(get_parameter_roles(self.model))
        parameters = dict(self.model.named_parameters())
        num_levels = self.model.adaptation.num_trainable_levels(
            max(self.config.epochs - 1, 0), self.config.epochs
        )
        min_level = 0 if num_levels is None else 1 + max(levels.values()) - num_levels
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
        return lambda progress: adaptation.num_trainable_levels(
            progress.step // schedule.steps_per_epoch, epochs
        )


@dataclass(frozen=True)
class TaskLosses:
    """The losses of a micro-batch."""

    run: FineTuningRun
    seed: int
    frozen_features: FrozenFeatures | None

    def __call__(self, batch: TaskBatch, progress: Progress) -> dict[str, Loss]:
        losses = self._step_losses(batch, progress)
        # Only in the first micro-batch of a step, so that it is counted once.
        if batch.first_sequence or not self.run.model.has_penalty:
            return losses
        penalty = self.run.model.penalty()
        return {**losses, PENALTY: Loss(penalty, 1.0, penalty.new_zeros(()))}

    def _step_losses(self, batch: TaskBatch, progress: Progress) -> dict[str, Loss]:
        run, model, task_index = self.run, self.run.model, batch.task_index
        head = model.head_of(task_index)
        rng = DropoutRng.for_step(self.seed, progress.step, batch.first_sequence, run.source.device)
        document_ids = batch.token_info.document_ids
        assert document_ids is not None, "task batches mark real positions"
        positions = None
        if not run.config.linear_gain:
            positions = head.output_positions(batch.token_ids, document_ids, batch.positions)
        real, output_lengths = (
            slice(batch.num_sequences),
            batch.output_lengths[: batch.num_sequences],
        )

        def hidden_states(positions: Tensor | None) -> Tensor:
            return model.hidden_states(
                task_index, batch.token_ids, batch.token_info, positions, rng, batch.packing
            )

        def outputs_and_loss(outputs: Tensor) -> tuple[Tensor, Loss]:
            decoder = run.encoded_tasks[task_index].output_decoder
            loss, num_correct = decoder.loss(outputs, batch.item_output_lengths, batch.targets)
            return outputs, Loss(loss, float(len(batch.targets)), num_correct)

        def apply_head(states: Tensor) -> tuple[Tensor, Loss]:
            if batch.decoder_inputs is not None:
                info, inputs = batch.token_info, batch.decoder_inputs
                return states, model.text_loss(states, info, inputs, batch.targets, rng)
            if run.config.linear_gain:
                head_rng = model.head_dropout_rng(rng, batch.first_sequence)
                decoder = run.encoded_tasks[task_index].output_decoder
                outputs, loss = linear_gain_loss(
                    head, decoder, states[real], document_ids[real], batch.targets, head_rng
                )
                return outputs, replace(outputs_and_loss(outputs)[1], sum=loss)
            if isinstance(head, TextVectorHead):
                inputs = batch.token_ids, batch.token_info, batch.positions
                outputs = model.text_vectors(task_index, states, *inputs)[real]
                return outputs_and_loss(outputs)
            outputs = model.head_outputs(
                task_index,
                states,
                document_ids,
                output_lengths,
                rng,
                batch.first_output,
                batch.token_info.segment_ids,
            )
            return outputs_and_loss(outputs)

        def forward_pass() -> tuple[Tensor, Loss]:
            return apply_head(hidden_states(positions))

        if self.frozen_features is not None:
            indices = batch.sequence_indices[: batch.num_sequences]
            features, tokens = self.frozen_features.gather(task_index, indices)
            head_rng = model.head_dropout_rng(rng, batch.first_output)
            outputs = head.project(features, output_lengths, head_rng, tokens)
            return {TASK_LOSS: outputs_and_loss(outputs)[1]}
        if run.config.perturbation is not None:
            loss = run.config.perturbation.loss(
                model.encoder.embeddings,
                forward_pass,
                document_ids >= 0,
                batch.count,
                self.seed + progress.step,
            )
            return {TASK_LOSS: loss}
        if run.distillation_loss is not None:
            return self._distillation_losses(run.distillation_loss, batch, progress, forward_pass)
        if model.lm_head is None or not run.config.language_model:
            outputs, loss = forward_pass()
            return {TASK_LOSS: loss, **self._output_penalty(batch, outputs, progress)}
        states = hidden_states(None)
        width = model.recipe.encoder.width
        lm_loss = next_token_loss(
            model.lm_head,
            model.encoder.embeddings.table,
            states[real, :, -width:],
            batch.token_ids[real],
            document_ids[real],
        )
        if positions is not None:
            states = states.flatten(0, 1).index_select(0, positions)
        return {TASK_LOSS: apply_head(states)[1], NEXT_TOKENS: lm_loss}

    def _output_penalty(
        self, batch: TaskBatch, outputs: Tensor, progress: Progress
    ) -> dict[str, Loss]:
        """Return the penalty on the outputs of a step, for output types that have one."""
        encoded_task = self.run.encoded_tasks[batch.task_index]
        if not encoded_task.task.output_type.is_penalised:
            return {}
        decoder, lengths = encoded_task.output_decoder, batch.item_output_lengths
        penalty = decoder.penalty(outputs, lengths, progress.fraction)
        return {OUTPUT_PENALTY: Loss(penalty, 1.0, penalty.new_zeros(()))}

    def _distillation_losses(
        self,
        distillation_loss: TaskDistillationLoss,
        batch: TaskBatch,
        progress: Progress,
        forward_pass: ForwardPass,
    ) -> dict[str, Loss]:
        """Return the loss on the labels and the distillation losses."""
        encoder = self.run.model.encoder
        with encoder.record(*distillation_loss.taps(progress), output_gradients=True) as values:
            outputs, label_loss = forward_pass()
        student_outputs = StudentOutputs(batch, values, progress, outputs)
        return {TASK_LOSS: label_loss, **distillation_loss.losses(student_outputs)}
