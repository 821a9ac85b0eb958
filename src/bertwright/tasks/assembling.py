"""From a model, examples and settings to what a training needs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertwright.errors import UserError
from bertwright.machine.speed import usual_precision
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.optimisers.adam import AdamW
from bertwright.schedules import Warmup
from bertwright.tasks.adaptation import Frozen
from bertwright.tasks.answers.texts import TextAnswer
from bertwright.tasks.apart import keeping_apart
from bertwright.tasks.distant import part_of
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning_settings import FineTuning, with_dropout
from bertwright.tasks.fitting_heads import check_head, frozen_texts, head_for
from bertwright.tasks.heads import HeadChoice
from bertwright.tasks.language_model import check_language_model
from bertwright.tasks.linear_heads import is_linear
from bertwright.tasks.parts import Part
from bertwright.tasks.seen_pieces import SeenPieces
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import Adapted, HeadPlan
from bertwright.tasks.task_training import Training, Watch
from bertwright.tasks.teaching import TaskTeaching, Teacher
from bertwright.tasks.wide_questions import with_wide_questions


def prepare_training(
    model: TextModel,
    given: Sequence[tuple[Task, Any, Any]],
    chosen: FineTuning,
    watch: Watch,
    out: Path | str | None,
    teacher: Teacher | None = None,
) -> Training:
    """What the runs of all seeds share."""
    tuned = model if isinstance(model, FineTuned) else None
    # What it was pre-trained for stands in the recipe of a fine-tuned model, not of its encoder.
    recipe = model.model.recipe if tuned is None else tuned.net.recipe
    recipe = with_dropout(recipe, chosen.dropout)
    recipe = with_wide_questions(recipe, [task.answer for task, _, _ in given])
    _check(model, chosen, given)
    longest = model.model.encoder.longest
    frozen = frozen_texts(chosen.adaptation, [(task.answer, train) for task, train, _ in given])
    choices = [head_for(chosen.head, recipe, task.answer, tuned, frozen) for task, _, _ in given]
    if apart := _all_apart(choices):
        recipe = keeping_apart(recipe)
    maker = RowMaker.of(recipe, model.tokenizer, longest, chosen.length, apart)
    parts = [part_of(task, train, dev, maker) for task, train, dev in given]
    plans = [
        HeadPlan(choice, p.answering.num_outputs, p.task.answer.name)
        for choice, p in zip(choices, parts, strict=True)
    ]
    for part, plan in zip(parts, plans, strict=True):
        stride = part.task.answer.stride if isinstance(part.task.answer, TextAnswer) else None
        if stride is not None and stride >= maker.length:
            raise UserError(
                f"answer.stride: {stride} is no less than a row, which has {maker.length} pieces: "
                f"choose less"
            )
        if wrong := check_head(plan.choice, part.task.answer, recipe.output):
            raise UserError(wrong)
    size = model.model.vocabulary_size
    beside = chosen.language_model > 0
    if beside and (wrong := check_language_model(model, chosen, [plan.choice for plan in plans])):
        raise UserError(wrong)
    seen = None
    if not (beside or chosen.adaptation.adds):
        seen = SeenPieces.of(model.model.encoder, parts, model.tokenizer.specials.pad)
    num_rows = None if seen is None else len(seen.kept)
    net = Adapted.empty(recipe, size, plans, chosen.adaptation, chosen.dropout, beside, num_rows)
    if chosen.epochs:
        _check_trained(net)
    fits_heads = _fits_heads(chosen, net)
    teaching = None if teacher is None else _taught(teacher, net, parts, seen, chosen)
    return Training(
        source=model,
        net=net.to(model.device),
        parts=parts,
        length=maker.length,
        epochs=chosen.epochs,
        patience=chosen.patience,
        optimiser=AdamW(
            rate=chosen.rate_for(recipe),
            decay=chosen.decay,
            layer_decay=chosen.adaptation.decay_by_level,
            bias_correction=chosen.bias_correction,
        ),
        schedule=chosen.schedule or Warmup(warmup=chosen.warmup),
        clip=chosen.clip,
        precision="float32" if fits_heads else chosen.precision or usual_precision(model.device),
        fits_heads=fits_heads,
        perturbation=chosen.perturbation,
        language_model=chosen.language_model,
        teaching=teaching,
        folder=Path() if out is None else Path(out).parent,
        seen=seen,
        watch=watch,
    )


def _check(model: TextModel, chosen: FineTuning, given: Sequence[tuple[Task, Any, Any]]) -> None:
    """Refuse what does not go together."""
    model.require_words("finetune")
    recipe, longest = model.model.recipe, model.model.encoder.longest
    if wrong := chosen.adaptation.check(recipe.encoder):
        raise UserError(wrong)
    with torch.device("meta"):
        plain = set(Model(recipe, model.model.vocabulary_size).encoder.state_dict())
    if added := sorted(set(model.model.encoder.state_dict()) - plain):
        raise UserError(
            f"this model computes with more than its recipe has ({added[0]}), which another "
            f"fine-tuning would leave behind: fine-tune the model that it was made of"
        )
    if longest is not None and chosen.length is not None and chosen.length > longest:
        raise UserError(f"length {chosen.length}: this encoder takes {longest} pieces at most")
    if chosen.perturbation is None:
        return
    if chosen.adaptation.keeps_states:
        raise UserError("perturbation: the encoder stays as it is: choose another adaptation")
    for task, _, _ in given:
        if wrong := chosen.perturbation.check(task.answer.name):
            raise UserError(wrong)


def _fits_heads(chosen: FineTuning, net: Adapted) -> bool:
    """Return whether heads are fitted to convergence instead of in steps."""
    adaptation = chosen.adaptation
    if not isinstance(adaptation, Frozen) or adaptation.solver == "adamw" or not chosen.epochs:
        return False
    heads = enumerate(net.plans)
    linear = all(is_linear(net.head(n)) and plan.answer != "cloze" for n, plan in heads)
    stated = chosen.stated_of_steps
    if adaptation.solver == "lbfgs" and stated:
        raise UserError(f"adaptation.solver: lbfgs takes no steps: leave {stated[0]} out")
    if adaptation.solver == "lbfgs" and not linear:
        raise UserError(
            "adaptation.solver: lbfgs fits linear heads: choose head.kind=plain, or adamw"
        )
    return linear and not stated


def _all_apart(choices: Sequence[HeadChoice]) -> bool:
    """Whether the texts of pairs are read apart, which is a matter of all tasks or of none."""
    apart = {choice.read == "apart" for choice in choices}
    if len(apart) > 1:
        raise UserError("head.read: apart is for all tasks that are learned at once: state another")
    return True in apart


def _check_trained(net: Adapted) -> None:
    """Refuse what has nothing to learn."""
    if not net.adaptation.keeps_states:
        return
    for number, plan in enumerate(net.plans):
        if next(net.head(number).parameters(), None) is None:
            raise UserError(
                f"nothing is trained: the encoder stays as it is, and for an answer of "
                f"{plan.answer} nothing stands behind it: choose another adaptation, as lora or "
                f"full, or epochs=0 to see what it does untrained"
            )


def _taught(
    teacher: Teacher,
    net: Adapted,
    parts: Sequence[Part],
    seen: SeenPieces | None,
    chosen: FineTuning,
) -> TaskTeaching:
    """What a teacher says to a network, which trains it beside."""
    if chosen.adaptation.keeps_states or chosen.perturbation or chosen.language_model:
        raise UserError(
            "a teacher has nothing to say to a frozen encoder, and goes with neither perturbation "
            "nor language_model: leave these out"
        )
    net.teaching = teacher.teaching(net, parts, seen)
    return net.teaching
