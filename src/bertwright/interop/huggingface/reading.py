"""From a Hugging Face folder to a model of ours."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from bertwright.axes import ReadingPrecision, explain
from bertwright.errors import UserError
from bertwright.interop.huggingface.configuration import CONFIG, read_config
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.interop.huggingface.family import Config, Family
from bertwright.interop.huggingface.purposes import (
    BARE,
    OPTIONS,
    POOLER,
    PROBLEMS,
    READS,
    SPANS,
    WORDS,
)
from bertwright.interop.huggingface.renaming import Tensors, knows, to_ours
from bertwright.interop.huggingface.sentence_vectors import read_sentence_vectors
from bertwright.interop.huggingface.tokenizer_reading import read_tokenizer
from bertwright.interop.huggingface.tokenizer_settings import longest_row
from bertwright.interop.huggingface.weights import read_weights, settled
from bertwright.model import Model
from bertwright.model.folder import fill, filled
from bertwright.model.text_model import TextModel
from bertwright.objectives import Objective, PairQuestion
from bertwright.objectives.causal import Causal
from bertwright.recipes import Recipe
from bertwright.recipes.loading import read
from bertwright.tasks.answers import OptionAnswer, SpanAnswer
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned import FineTuned, num_outputs
from bertwright.tasks.formats.questions import QuestionReader
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from bertwright.tasks.task_model import HeadPlan, TaskModel
from bertwright.tasks.wide_questions import with_wide_questions
from bertwright.text.tokenizers import Specials, Tokenizer

PIECES = "encoder.embeddings.pieces.weight"


def is_huggingface(folder: Path) -> bool:
    """Whether a folder describes its model as stock classes do."""
    return (folder / CONFIG).is_file()


@dataclass(frozen=True)
class Found:
    """What a folder holds, in our terms: tensors by our names, and what its head is for."""

    folder: Path
    family: Family
    config: Config
    purpose: str
    tensors: Tensors
    recipe: Recipe
    tokenizer: Tokenizer

    @property
    def rows(self) -> int:
        """The rows of the table of pieces: there may be more of them than pieces."""
        return len(self.tensors[PIECES])


def load(folder: Path, precision: ReadingPrecision | None = None) -> TextModel:
    """A folder of a stock class that is known, ready to use; a :class:`FineTuned` where it
    is one for classes, numbers or tags.

    Errors: as :func:`import_folder`.
    """
    found = read_folder(folder)
    if found.purpose in found.family.classifiers:
        return _fine_tuned(found, precision)
    return TextModel(_model(found), found.tokenizer, precision)


def import_folder(folder: Path) -> tuple[Model, Tokenizer]:
    """Read a folder of a stock class that is known, in float32.

    The recipe states what the weights hold: a folder without a head over the vocabulary becomes a
    model without objectives, and its pooler, if it has one, is kept; so is how one of
    sentence-transformers makes the vector of a text.

    Errors: UserError for a folder that is none, is damaged, holds pickles, is fine-tuned, makes
    vectors as ``embed`` cannot, or whose configuration has no place among the axes.
    """
    found = read_folder(folder)
    if found.purpose in found.family.classifiers:
        raise UserError(f"{folder} holds a fine-tuned model: an encoder for pre-training is asked")
    return _model(found), found.tokenizer


def read_folder(folder: Path) -> Found:
    """Everything in a folder, checked and by our names; but for a pooler that a stock class for a
    task does not read."""
    config = read_config(folder)
    family = _family(folder, config)
    try:
        tensors, config = settled(family, read_weights(folder), config)
        purpose = _purpose(family, tensors, config)
        tensors = to_ours(family.table(purpose), family.from_stock(tensors))
        tensors = family.received(tensors, config)
        if purpose in family.classifiers:
            tensors = _without_pooler(tensors)
        elif not any(bool(t.any()) for n, t in tensors.items() if n.startswith(f"{POOLER}.")):
            tensors = _without_pooler(tensors)  # zeros stand for none
        settings = family.settings(config)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error
    except (RuntimeError, LookupError) as error:  # of tensors that do not fit together
        raise UserError(
            f"{folder}: its tensors are not those of {family.class_name} ({error}): copy it again"
        ) from error
    tokenizer = read_tokenizer(folder, config, family.special_pieces)
    begin = config.get("decoder_start_token_id")
    recipe = _recipe(folder, family, settings, purpose, tensors, tokenizer, begin)
    vectors = read_sentence_vectors(folder, config, tokenizer.lowercase)
    recipe = recipe.model_copy(update={"vectors": vectors})
    found = Found(folder, family, config, purpose, tensors, recipe, tokenizer)
    if PIECES not in tensors or tokenizer.size > found.rows:
        rows = found.rows if PIECES in tensors else "no table of them"
        raise UserError(
            f"{folder}: the tokenizer has {tokenizer.size} pieces, the model {rows}: they do not "
            f"belong together"
        )
    return found


def _without_pooler(tensors: Tensors) -> Tensors:
    return {name: tensor for name, tensor in tensors.items() if not name.startswith(f"{POOLER}.")}


def _begins(folder: Path, specials: Specials, begin: int, usual: str) -> str:
    """The role of the piece that a decoder is given first: the usual one, where it is that."""
    for role in (usual, "pad", "end", "start", "mask"):
        if getattr(specials, role) == begin:
            return role
    raise UserError(
        f"{folder / CONFIG}: decoder_start_token_id is {begin}, which is no special piece: what "
        f"can be read begins with one that pads, ends, starts or hides"
    )


def _model(found: Found) -> Model:
    return filled(found.recipe, found.rows, found.tensors, str(found.folder))


def _fine_tuned(found: Found, precision: ReadingPrecision | None) -> FineTuned:
    classifier = found.family.classifiers[found.purpose]
    pooling = READS[found.config.get("classifier_pooling", "cls")]
    read = pooling if pooling in classifier.reads else classifier.reads[0]
    task = _task(found)
    plan = HeadPlan(classifier.choice(read), num_outputs(task), task.answer.name)
    with torch.device("meta"):
        net = TaskModel(with_wide_questions(found.recipe, [task.answer]), found.rows, plan)
    fill(net, found.tensors, str(found.folder))
    limits = (longest_row(found.folder), net.encoder.longest)
    length = min((limit for limit in limits if limit is not None), default=None)
    return FineTuned(net.eval(), found.tokenizer, task, length, precision)


def _task(found: Found) -> Task:
    """The task that a stock configuration describes."""
    if found.purpose == SPANS:
        return Task("imported", SpanAnswer(), QuestionReader())
    if found.purpose == OPTIONS:
        return Task("imported", OptionAnswer())
    named: dict[str, str] = found.config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    labels = tuple(named[index] for index in sorted(named, key=int))
    problem = found.config.get("problem_type")
    if found.purpose == WORDS:
        return replace(tagging_task("imported"), labels=labels, metrics=())
    if problem == PROBLEMS["number"] or (problem is None and len(labels) == 1):
        return table_task("imported", Columns(), "number")
    several = problem == PROBLEMS["labels"]
    return table_task("imported", Columns(), "labels" if several else "class", labels=labels)


def _purpose(family: Family, tensors: Tensors, config: Config) -> str:
    """What the tensors are for: heads of pre-training are told by what is there."""
    architecture = next(iter(config.get("architectures") or [""]))
    stated = architecture.removeprefix(family.class_name)
    if stated in family.classifiers:
        return stated
    if stated == BARE and all(knows(family.table(BARE), name) for name in tensors):
        return BARE
    if not any(name.startswith(f"{family.prefix}.") for name in tensors):
        return BARE
    ours = to_ours(family.table(family.purposes[True, None]), tensors)
    heads = {head for _, head in family.purposes if head is not None}
    head = next((h for h in heads if any(n.startswith(f"heads.{h}.") for n in ours)), None)
    names_pieces = family.output_bias is None or any(n.startswith("output.") for n in ours)
    return family.purposes[names_pieces, head]


def _family(folder: Path, config: Config) -> Family:
    kind = config.get("model_type")
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UserError(f"{folder / CONFIG}: the model_type is {kind!r}: readable are {known}")
    return FAMILIES[kind]


def _recipe(
    folder: Path,
    family: Family,
    settings: dict[str, Any],
    purpose: str,
    named: Tensors,
    tokenizer: Tokenizer,
    begin: int | None,
) -> Recipe:
    """The recipe of what a folder holds: its axes spelled out, its training that of our recipe;
    ``begin`` is the piece that a decoder is given first, where that is stated."""
    training = read(family.recipe)
    named_by = {p: (family.asks if names else None, h) for (names, h), p in family.purposes.items()}
    asked = [name for name in named_by.get(purpose, ()) if name is not None]
    objectives = {name: training["objectives"].get(name, {}) for name in asked}
    if "denoising" in objectives and begin is not None:
        noising = objectives["denoising"]["noising"]
        own = {**noising, "begins": _begins(folder, tokenizer.specials, begin, noising["begins"])}
        objectives = {"denoising": {**objectives["denoising"], "noising": own}}
    assembly = {"kind": "full-sentences"}
    if any(issubclass(Objective.kinds()[name], PairQuestion) for name in objectives):
        assembly = {"kind": "segment-pair"}
    elif any(issubclass(Objective.kinds()[name], Causal) for name in objectives):
        assembly = training["assembly"]  # what opens a text is what the model reads first
    stated = {
        **training,
        "name": f"{family.model_type}-imported",
        "source": f"imported from {folder.resolve().name}",
        "family": family.model_type,
        "text": {
            "tokenizer": {
                "kind": tokenizer.kind,
                "size": tokenizer.size,
                "lowercase": tokenizer.lowercase,
            }
        },
        **settings,
        "assembly": {**assembly, **settings["assembly"]},
        "objectives": objectives,
        "pooler": "pooler.weight" in named,
        "phases": [{}],
    }
    try:
        return Recipe.model_validate(stated)
    except ValidationError as error:
        raise explain(error, str(folder / CONFIG)) from error
