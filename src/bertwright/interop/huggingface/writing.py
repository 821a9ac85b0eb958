"""From a model of ours to a folder that stock Transformers classes load."""

import copy
import json
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from bertwright.compression.quantisation import unrounded
from bertwright.errors import UserError
from bertwright.files import atomic_folder
from bertwright.interop.huggingface.families import family_of
from bertwright.interop.huggingface.family import Family
from bertwright.interop.huggingface.model_card import model_card
from bertwright.interop.huggingface.purposes import CAUSAL, PROBLEMS, READS, Net
from bertwright.interop.huggingface.reading import CONFIG
from bertwright.interop.huggingface.renaming import Tensors, to_theirs
from bertwright.interop.huggingface.tokenizer_writing import write_tokenizer
from bertwright.interop.huggingface.verification import greatest_difference
from bertwright.interop.huggingface.weights import WEIGHTS
from bertwright.model import Model
from bertwright.objectives.causal import Causal
from bertwright.tasks.answers import LabelsAnswer, SpanAnswer
from bertwright.tasks.encoding import separators_of
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Tokenizer

CARD = "README.md"

POSITIONS = "max_position_embeddings"
"""The key under which a configuration states the longest row."""


@dataclass(frozen=True)
class Export:
    """What was written: the stock class, and, where it was asked for, the greatest absolute
    difference between its outputs and ours; then the objectives whose heads no stock class has, and
    in words a threshold that none knows."""

    architecture: str
    max_difference: float | None
    left_behind: tuple[str, ...] = ()
    threshold: str = ""


def export_folder(
    model: Model | FineTuned,
    tokenizer: Tokenizer,
    folder: Path,
    verify: bool = False,
    family_name: str | None = None,
) -> Export:
    """Write config.json, model.safetensors, the tokenizer's files and a model card.

    What a fine-tuned model says is written divided by its temperature, so that its probabilities
    are those of ``predict``.

    ``verify`` loads what was written with Transformers and compares; a folder that differs is not
    kept. ``family_name`` is the model_type to write, where several compute the same.

    Errors: UserError where no stock class computes the recipe, which names the axis; MissingExtra
    where ``verify`` finds no Transformers.
    """
    if isinstance(model, FineTuned):
        model = unrounded(model)
        net = _cooled(model)
    else:
        net = model
    family = family_of(net, tokenizer.specials, family_name)
    config = family.config(net, tokenizer.specials)
    if isinstance(model, FineTuned):
        config |= task_config(model, family)
    longest = _longest_row(model)
    if net.encoder.longest is None and POSITIONS in config:
        config[POSITIONS] = max(config[POSITIONS], longest)
    architecture: str = config["architectures"][0]
    with atomic_folder(folder) as temporary:
        (temporary / CONFIG).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        tensors = stock_tensors(family, net)
        save_file(tensors, str(temporary / WEIGHTS), metadata={"format": "pt"})
        encoder, purpose = net.recipe.encoder, family.purpose(net)
        separators = separators_of(net.recipe, tokenizer)
        reads_on = any(isinstance(o, Causal) for o in net.recipe.objectives.values())
        opening = None
        if reads_on and purpose == CAUSAL:
            opening = net.recipe.assembly.opening(tokenizer.specials)
        write_tokenizer(temporary, tokenizer, encoder.has_segments, longest, separators, opening)
        needs = family.told(encoder.visibility)
        threshold = _threshold(model) if isinstance(model, FineTuned) else ""
        card = model_card(net, tokenizer, architecture, purpose, longest, needs, threshold)
        (temporary / CARD).write_text(card, encoding="utf-8")
        difference = None
        if verify:
            difference = greatest_difference(temporary, family, net, tokenizer, opening)
    return Export(architecture, difference, tuple(family.left_behind(net)), threshold)


def task_config(model: FineTuned, family: Family) -> dict[str, Any]:
    """What a stock class for a task is told of it: its labels, or that it gives a number."""
    task, choice = model.task, model.net.choice
    labels = task.labels or tuple(f"LABEL_{n}" for n in range(model.net.plan.num_outputs))
    config: dict[str, Any] = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    if task.answer.name in PROBLEMS:
        config["problem_type"] = PROBLEMS[task.answer.name]
    elif task.answer.name not in ("tags", "span", "option"):
        other = " or export it to sentence-transformers" if task.answer.name == "closeness" else ""
        raise UserError(
            f"an answer of {task.answer.name} is written for no stock class: use the folder as it "
            f"is{other}"
        )
    if len(family.classifiers[family.purpose(model.net)].reads) > 1:
        config["classifier_pooling"] = next(t for t, ours in READS.items() if ours == choice.read)
    return config


@torch.no_grad()
def _cooled(model: FineTuned) -> TaskModel:
    """The model of a task that says what it says divided by the temperature."""
    if model.temperature == 1.0:
        return model.net
    net = copy.deepcopy(model.net)
    for parameter in net.head.out.parameters():
        parameter /= model.temperature
    return net


def _threshold(model: FineTuned) -> str:
    """A threshold of the answer that is not the one of stock classes, in words."""
    answer = model.task.answer
    if isinstance(answer, LabelsAnswer) and answer.threshold != 0.5:
        odds = log(answer.threshold / (1 - answer.threshold)) / model.temperature
        return f"a label is said that is more probable than {1 / (1 + exp(-odds)):.4g}, not 0.5"
    if isinstance(answer, SpanAnswer) and answer.unanswerable and answer.threshold:
        return f"no answer is said where it is ahead of the best by {answer.threshold:.4g}, not 0"
    return ""


@torch.no_grad()
def stock_tensors(family: Family, net: Net) -> Tensors:
    """The tensors of a model as its stock class saves them: float32, what is tied once."""
    gone = tuple(f"heads.{name}." for name in family.left_behind(net))
    kept = {n: t for n, t in family.completed(net).items() if not n.startswith(gone)}
    kept = {**family.without_pooler(net), **kept}
    tensors = family.as_stock(to_theirs(family.table(family.purpose(net)), kept), net)
    if family.output_bias is not None and f"{family.decoder}.weight" in tensors:
        tensors[f"{family.decoder}.bias"] = tensors[family.output_bias].clone()
    return {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}


def _longest_row(model: Model | FineTuned) -> int:
    if isinstance(model, FineTuned):
        return model.maker.length
    recipe = model.recipe
    trained = max(recipe.assembly_of(number).length for number in range(len(recipe.phases)))
    return model.encoder.longest or trained
