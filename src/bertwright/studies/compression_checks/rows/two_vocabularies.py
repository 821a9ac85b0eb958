"""A student with fewer pieces than its teacher, which learns these pieces beside it."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from bertwright.analysis.planted.expecting import equal, same
from bertwright.compression.compressing import num_parameters
from bertwright.compression.lessons.lessons import Lessons
from bertwright.compression.lessons.together import LearningTeacher, Together, as_it_stood
from bertwright.compression.lessons.two_tables import TwoVocabularyModel
from bertwright.compression.transfer.texts import written_in
from bertwright.compression.trimming import trim
from bertwright.examples.batches import Batch
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.masked import Masked
from bertwright.studies.compression_checks.ground import Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.text.shards import Data
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.training.clock import Place
from bertwright.training.recipe_batches import RecipeBatches

FEW = 100
NARROW = ("encoder.width=32", "encoder.mixer.head_width=8")


def run(ground: Ground) -> Came:
    """The student reads as long by itself, beside its teacher, and from a table learned there."""
    yield from _one_vocabulary(ground)
    yield from _trimmed(ground)
    few, teacher = ground.cut("c4-data", WordPieceChoice(size=FEW)), ground.pretrained
    yield from _same_text(ground, few)
    together, table = (
        Lessons.load(name).of(teacher) for name in ("dual-vocabulary", "mixed-vocabulary")
    )
    words: dict[str, list[float]] = {"alone": [], "together": [], "from a table": []}
    for seed in ground.seeds:
        learned = partial(ground.learned, recipe=ground.recipe(*NARROW, seed=seed), data=few)
        begun = learned(f"c4-begun-{seed}", teacher=table).path
        for name, found in words.items():
            start = begun if name == "from a table" else None
            who = together if name == "together" else None
            came = learned(f"c4-{name}-{seed}", start_from=start, teacher=who)
            found.append(came.figures["nats_per_hidden_word"])
    for name in ("together", "from a table"):
        yield Measured(f"nats a word, {name}", words[name], "alone", words["alone"])


def _one_vocabulary(ground: Ground) -> Came:
    """A teacher that knows its own pieces twice is asked what a masked model is, whether it reads
    them as its own or as its student's."""
    teacher, recipe, place = ground.pretrained, ground.recipe(), Place(0, 0.0)
    student = Model.build(recipe, teacher.tokenizer.size)
    twice = TwoVocabularyModel(teacher.model, student, mapped=False)
    assert twice.tables.own is not None, "nothing is mapped"
    with torch.no_grad():
        twice.tables.own.weight.copy_(twice.tables.first.weight)
        twice.second_output.load_state_dict(twice.first_output.state_dict())
    objective, step = recipe.objectives["masked"], RecipeBatches(recipe, ground.data)(place)
    assert isinstance(objective, Masked), "what hides is masked"
    for share in (0.0, 1.0):
        teaching = LearningTeacher(teacher, Together(words=share)).teaching(student, ground.data)
        (plain,) = teaching.prepared(step, place).micro_batches
        assert plain.beside is not None, "prepared by its teacher"
        once, own = _once(plain.beside, teacher.tokenizer.size), TensorBatch(plain.beside)
        read, stood = (as_it_stood(each, "masked").pieces for each in (once, plain))
        told = f"where it reads {share:.0%} of words as its student"
        yield same(f"the same text, {told}", np.array_equal(read, stood), True)
        with torch.no_grad():
            found = twice.loss(own.pieces, own.coordinates, own.questions["masked"], objective)
            usual = teacher.model.losses(TensorBatch(once), recipe.objectives)["masked"]
        yield equal(f"the same loss, {told}", float(found.sum / usual.sum), 1, 1e-5)


def _once(batch: Batch, size: int) -> Batch:
    """Pieces of the second vocabulary as the same pieces of the first."""
    asked = batch.questions["masked"]
    question = replace(asked, target=asked.target % size)
    return replace(batch, pieces=batch.pieces % size, questions={"masked": question})


def _trimmed(ground: Ground) -> Came:
    """Without the pieces that its task does not need a model answers as before: the least that a
    smaller vocabulary must be worth."""
    model, examples = ground.tuned("sentiment"), ground.judge("sentiment")
    small = trim(model, examples=examples)
    assert isinstance(small, FineTuned), "as it was"
    found, wanted = (
        np.stack(each.outputs(each.answering.rows(each.maker, examples))) for each in (small, model)
    )
    yield equal("answers without the pieces that no text needs", found, wanted, 1e-5)
    left = num_parameters(small)["all"] / num_parameters(model)["all"]
    yield Measured("of its parameters, what is left then", [left])


def _same_text(ground: Ground, few: Data) -> Came:
    """Either vocabulary gives back the same text, and says it in more pieces or in fewer."""
    texts = [text for example in ground.judge("sentiment") for text in written_in(example)]
    cut = [data.tokenizer.encode_batch(texts) for data in (few, ground.data)]
    read = [
        [data.tokenizer.decode(ids) for ids in own]
        for data, own in zip((few, ground.data), cut, strict=True)
    ]
    yield same("the same texts of either pieces", read[0] == read[1], True)
    longer = [len(a) / len(b) for a, b in zip(*cut, strict=True)]
    yield Measured("pieces of a text, over those of the teacher", longer, over="texts")


ROW = Row(
    "C4",
    "two-vocabularies",
    "Does a student with few pieces learn more beside a teacher that learns them as well?",
    "Zhao et al. 2019, 2021",
    run,
)
