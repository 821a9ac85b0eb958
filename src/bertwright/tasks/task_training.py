"""Fine-tuning once: one seed, from a pre-trained encoder to the best of its epochs."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from bertwright.axes import Precision
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.roles import roles
from bertwright.machine.compiler import fingerprint
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss
from bertwright.optimisers.adam import AdamW
from bertwright.optimisers.parameters import MasterParameters, levels_of
from bertwright.schedules import Schedule
from bertwright.tasks.bucketing import BatchPlan
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.heads import Head, begin, go_on
from bertwright.tasks.judging import Best, EpochReport, Judge
from bertwright.tasks.kept_states import KeptStates
from bertwright.tasks.language_model import NEXT_PIECES, next_pieces_loss
from bertwright.tasks.linear_heads import LinearFit, fit_linear_head
from bertwright.tasks.parts import Part, Turns
from bertwright.tasks.perturbation import Perturbation, Run
from bertwright.tasks.seen_pieces import TABLE, SeenPieces
from bertwright.tasks.task_batches import ANSWER, Batches, TaskBatch, uncounted
from bertwright.tasks.task_model import Adapted
from bertwright.tasks.teaching import Lesson, TaskTeaching
from bertwright.training.clipping import Clipping
from bertwright.training.clock import Clock, Place, every
from bertwright.training.compilation.steps import require_agreement
from bertwright.training.compilation.verdicts import Verdicts
from bertwright.training.distributed import Processes
from bertwright.training.loop import Job, train
from bertwright.training.procedure import Procedure
from bertwright.training.reporting import Reporter, Reporters
from bertwright.training.teaching import TEACHING
from bertwright.training.unfreezing import Unfreezing

PENALTY = "penalty"
"""The name of what changes of the weights cost."""

Watch = Callable[[int, Clock], Reporter]
"""Makes what follows the run of a seed, from its clock."""


def unwatched(seed: int, clock: Clock) -> Reporter:
    """Nothing follows."""
    return Reporter()


@dataclass(frozen=True)
class Training:
    """What one run needs; ``net`` is filled anew for every seed.

    With ``fits_heads`` linear heads are fitted to convergence instead of in steps, and ``fits``
    collects by task what became of them. ``seen`` are the pieces that the table of ``net`` has,
    None for all. ``watch`` makes what follows the run of a seed, ``procedures`` act in its steps,
    ``epochs_seen`` collects how every epoch ended.
    """

    source: TextModel
    net: Adapted
    parts: Sequence[Part]
    length: int
    epochs: int
    patience: int | None
    optimiser: AdamW
    schedule: Schedule
    clip: float | None
    precision: Precision
    perturbation: Perturbation | None
    language_model: float
    teaching: TaskTeaching | None
    folder: Path
    seen: SeenPieces | None
    watch: Watch
    fits_heads: bool = False
    procedures: Sequence[Procedure] = ()
    epochs_seen: list[EpochReport] = field(default_factory=list[EpochReport])
    fits: list[Mapping[str, LinearFit]] = field(default_factory=list[Mapping[str, LinearFit]])
    kept_states: list[KeptStates] = field(default_factory=list[KeptStates])
    """What all seeds read of an encoder that stays as it is, once it is known."""

    def run(self, plans: Sequence[BatchPlan], turns: Turns, compiled: bool) -> Best:
        """Train with the seed of the turns, which draws heads, order and dropout."""
        device, seed = self.source.device, turns.seed
        known = self._begin(seed)
        kept = None
        if self.net.adaptation.keeps_states:
            if not self.kept_states:
                states = KeptStates(self.source, self.net, self.parts, self.precision)
                self.kept_states.append(states)
            kept = self.kept_states[0]
            self._standardise(kept, known)
            if self.fits_heads:
                self._fit_heads(kept, seed)
        parameters = MasterParameters(self.net, roles(self.net), self.precision, device)
        clock = Clock(self.epochs * turns.steps_per_epoch)
        judge = Judge(self, parameters, seed, clock, kept)
        if self.fits_heads:
            judge.losses += [fit.loss for fit in self.fits[-1].values()]
        if not self.epochs or self.fits_heads:
            judge.evaluate(clock.place(0))
        else:
            update = self.optimiser.build(parameters)
            unfreezing = Unfreezing(parameters, update, self._levels(turns))
            beside = [
                procedure
                for each in (self.net.changes, self.teaching)
                for procedure in (() if each is None else each.procedures)
            ]
            job = Job(
                parameters=parameters,
                update=update,
                procedures=[unfreezing, *self.procedures, *beside],
                batch=Batches(
                    self.source,
                    self.parts,
                    plans,
                    turns,
                    self.seen,
                    self.language_model > 0,
                    self._counts,
                ).at,
                losses=_Losses(self, seed, kept),
                clock=clock,
                rate=self.schedule.at,
                weights=self._weights,
                clip=Clipping(self.clip),
                processes=Processes(device=device),
                evaluate=judge.evaluate,
                evaluate_when=every(turns.steps_per_epoch),
                reporter=Reporters(judge, self.watch(seed, clock)),
                folder=self.folder,
                remedy="lower the rate or lengthen the warmup, and start again",
            )
            if compiled:
                job.compile()
                require_agreement(job, clock.place(0), self._kind_of_step(), Verdicts())
            train(job)
        parameters.release()
        assert judge.best is not None, "an epoch ends with an evaluation"
        return judge.best

    def _kind_of_step(self) -> str:
        """Return the name of the compiled graph of this training, and of what compiles it."""
        recipe = self.net.recipe.model_dump(mode="json", include={"encoder"})
        adaptation = repr(self.net.adaptation)
        return fingerprint(
            "fine-tuning", json.dumps(recipe), adaptation, self.precision, str(self.length)
        )

    def trained_share(self) -> float:
        """How much of the parameters is trained at the end."""
        levels, parameters = levels_of(roles(self.net)), dict(self.net.named_parameters())
        last = self.net.adaptation.trained_levels(max(self.epochs - 1, 0), self.epochs)
        least = 0 if last is None else 1 + max(levels.values()) - last
        sizes = {name: parameter.numel() for name, parameter in parameters.items()}
        sizes |= {name: 0 for name in sizes if name.startswith(TEACHING)}
        if self.seen is not None:
            sizes[f"encoder.{TABLE}"] = self.seen.whole.numel()
        trained = sum(
            sizes[n] for n, p in parameters.items() if p.requires_grad and levels[n] >= least
        )
        return trained / sum(sizes.values())

    def state(self, parameters: MasterParameters) -> Mapping[str, Tensor]:
        """The parameters by name, with all pieces of the vocabulary."""
        state = parameters.state()
        return state if self.seen is None else self.seen.restored(state, "encoder.")

    def _begin(self, seed: int) -> list[bool]:
        """The parameters as they are before the first step; which heads have first maps
        that are known."""
        own, known = self.net.encoder, self.source.model.encoder.state_dict()
        own.load_state_dict(known if self.seen is None else self.seen.cut(known), strict=False)
        self.net.adaptation.begin(own, self.net.recipe, seed)
        if self.net.output is not None and self.source.model.output is not None:
            self.net.output.load_state_dict(self.source.model.output.state_dict())
        if self.net.changes is not None:
            self.net.changes.begin(seed)
        known = [
            self._begin_head(self.net.head(number), part, seed)
            for number, part in enumerate(self.parts)
        ]
        if self.teaching is not None:
            self.teaching.begin(seed)
        return known

    def _begin_head(self, head: Head, part: Part, seed: int) -> bool:
        """One that knows nothing, or what that of a fine-tuned model knows: of the same task all,
        of another its first part. Whether its first maps are known."""
        known, anew = self.source, self.net.adaptation.anew
        tuned = known if isinstance(known, FineTuned) and not anew else None
        if tuned is not None and tuned.knows(part.task, head):
            head.load_state_dict(tuned.net.head.state_dict())
            part.answering.unfold_from(head.out)
            return True
        begin(head, None if anew else known.model, seed)
        part.answering.begin(head.out, known)
        return tuned is not None and go_on(head, tuned.net.head)

    def _standardise(self, kept: KeptStates, known: Sequence[bool]) -> None:
        """Let heads learn on states in standard form, unless they begin as one of pre-training."""
        for number, plan in enumerate(self.net.plans):
            head = self.net.head(number)
            if not head.first_maps or plan.answer == "cloze":
                continue
            head.standard = kept.standard(number)
            if known[number]:
                head.standard.unfold_from(head.first_maps)

    def _fit_heads(self, kept: KeptStates, seed: int) -> None:
        self.fits.append(
            {
                part.task.name: fit_linear_head(
                    self.net.head(number), part, kept.training(number), seed
                )
                for number, part in enumerate(self.parts)
            }
        )

    def _counts(self, rows: Sequence[TaskRow], count: float) -> Mapping[str, float]:
        """What losses beside that of the labels are divided by."""
        counts = uncounted if self.teaching is None else self.teaching.counts
        changes = self.net.changes
        costs = {PENALTY: 1.0} if changes is not None and changes.penalised else {}
        return {**counts(rows, count), **costs}

    def _weights(self, place: Place) -> Mapping[str, float]:
        if self.teaching is not None:
            return self.teaching.weights(place)
        return {NEXT_PIECES: self.language_model}

    def _levels(self, turns: Turns) -> Callable[[Place], int | None]:
        adaptation, epochs = self.net.adaptation, self.epochs
        return lambda place: adaptation.trained_levels(place.step // turns.steps_per_epoch, epochs)


@dataclass(frozen=True)
class _Losses:
    """The loss of a micro-batch."""

    training: Training
    seed: int
    kept: KeptStates | None

    def __call__(self, batch: TaskBatch, place: Place) -> dict[str, Loss]:
        changes = self.training.net.changes
        losses = self._of(batch, place)
        if changes is None or not changes.penalised or batch.first_row:
            return losses
        # With the first micro-batch of a step, so that it counts once.
        penalty = changes.penalty()
        return {**losses, PENALTY: Loss(penalty, 1.0, penalty.new_zeros(()))}

    def _of(self, batch: TaskBatch, place: Place) -> dict[str, Loss]:
        training, net = self.training, self.training.net
        noise = Noise.of(self.seed, place.step, batch.first_row, training.source.device)

        document = batch.coordinates.document
        assert document is not None, "batches of tasks say which places are real"

        def judged(outputs: Tensor) -> tuple[Tensor, Loss]:
            outputs = outputs[: sum(batch.item_sizes)]
            answering = training.parts[batch.part].answering
            loss, right = answering.loss(outputs, batch.item_sizes, batch.targets)
            return outputs, Loss(loss, float(len(batch.targets)), right)

        wanted = net.head(batch.part).places(batch.pieces, document, batch.where)

        def answered(states: Tensor) -> tuple[Tensor, Loss]:
            more = batch.sizes, noise, batch.first_answer
            return judged(net.answer(batch.part, states, document, *more))

        def read(wanted: Tensor | None) -> Tensor:
            return net.states(batch.part, batch.pieces, batch.coordinates, wanted, noise)

        if self.kept is not None:
            states = self.kept.of(batch.part, batch.numbers)
            behind = net.behind(noise, batch.first_answer)
            return {ANSWER: judged(net.head(batch.part).answer(states, batch.sizes, behind))[1]}
        if training.perturbation is not None:
            found = training.perturbation.loss(
                net.encoder.embeddings,
                lambda: answered(read(wanted)),
                document >= 0,
                batch.count,
                self.seed + place.step,
            )
            return {ANSWER: found}
        if training.teaching is not None:
            return self._taught(training.teaching, batch, place, lambda: answered(read(wanted)))
        if net.output is None:
            return {ANSWER: answered(read(wanted))[1]}
        states = read(None)
        real, width = slice(batch.num_rows), training.net.recipe.encoder.width
        next_pieces = next_pieces_loss(
            net.output,
            net.encoder.embeddings.table,
            states[real, :, -width:],
            batch.pieces[real],
            document[real],
        )
        own = states if wanted is None else states.flatten(0, 1).index_select(0, wanted)
        return {ANSWER: answered(own)[1], NEXT_PIECES: next_pieces}

    def _taught(
        self, teaching: TaskTeaching, batch: TaskBatch, place: Place, run: Run
    ) -> dict[str, Loss]:
        """The loss of the labels, and those of the teacher."""
        encoder = self.training.net.encoder
        with encoder.record(*teaching.sites, gradients=True) as values:
            outputs, labels = run()
        lesson = Lesson(batch, outputs, values, place.progress)
        return {ANSWER: labels, **teaching.losses(lesson)}
