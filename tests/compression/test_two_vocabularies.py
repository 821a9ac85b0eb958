"""A teacher and a student with fewer pieces: what each reads, what is lost, and what is kept."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_recipe import small
from toy_stories import stories

from bertwright.compression.lessons.lessons import LESSONS, Lessons
from bertwright.compression.lessons.together import MIXED, VARIABLES, as_it_stood
from bertwright.compression.lessons.two_tables import TwoTables
from bertwright.compression.lessons.variables import SharedProjections, Variables, variables_of
from bertwright.compression.method import names_in
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.initialisation import initialise
from bertwright.errors import UserError
from bertwright.examples.batches import Batch
from bertwright.interop.loading import load
from bertwright.model.model import Model, TensorBatch
from bertwright.model.text_model import TextModel
from bertwright.objectives.objective import Loss
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import Tokenizer, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.clock import Place
from bertwright.training.pretraining import pretrain
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.recipe_losses import RecipeLosses
from bertwright.training.run_folder import fitted
from recipes_at_toy_size import shaken

LEARNING = [name for name in names_in(LESSONS) if Lessons.load(name).together]
BERT = (
    "encoder.dropout=0",
    "encoder.mixer.dropout=0",
    "encoder.initialisation={kind: width-aware}",
    "objectives.next-sentence=null",
    "objectives.masked.corruption={mask: 1, random: 0, keep: 0}",
    "phases=[{}]",
)
NARROW = ("encoder.width=16", "encoder.mixer.head_width=8")
TEXTS = stories(60)


@pytest.fixture(scope="module")
def large() -> Tokenizer:
    return train_tokenizer(TEXTS, WordPieceChoice(size=120))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Data:
    """The text in pieces of a vocabulary half as large."""
    return prepared(
        tmp_path_factory.mktemp("few"), train_tokenizer(TEXTS, WordPieceChoice(size=60))
    )


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, large: Tokenizer) -> Data:
    """The text in the pieces of the teacher."""
    return prepared(tmp_path_factory.mktemp("many"), large)


def prepared(folder: Path, tokenizer: Tokenizer) -> Data:
    (folder / "text.txt").write_text("\n\n".join(TEXTS))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=0.2, num_workers=1)


@pytest.fixture(scope="module")
def teacher(many: Data, large: Tokenizer) -> TextModel:
    recipe = fitted(small("bert", *BERT), many)
    return TextModel(shaken(Model.build(recipe, large.size), 0.05), large, "float32")


def lessons(name: str = "dual-vocabulary", **settings: object) -> Lessons:
    found = Lessons.load(name)
    assert found.together is not None
    return found.model_copy(update={"together": found.together.model_copy(update=settings)})


class Step:
    """The first step of a student, looked at from outside."""

    def __init__(
        self,
        data: Data,
        teacher: TextModel,
        said: Lessons,
        *changes: str,
        place: Place = Place(3, 0.5),
    ) -> None:
        recipe = fitted(small("bert", *BERT, *changes), data)
        self.student = Model.build(recipe, data.tokenizer.size)
        self.teaching = said.of(teacher).teaching(self.student, data)
        self.student.teaching = self.teaching
        self.teaching.begin(0)
        self.place = place
        self.plain = RecipeBatches(recipe, data)(place)
        self.step = self.teaching.prepared(self.plain, place)
        self.recipe = recipe

    @property
    def beside(self) -> list[Batch]:
        found = [batch.beside for batch in self.step.micro_batches]
        assert all(each is not None for each in found)
        return [each for each in found if each is not None]

    def losses(self) -> Mapping[str, Loss]:
        (batch,) = self.step.micro_batches
        return RecipeLosses(self.recipe, self.student, teaching=self.teaching)(batch, self.place)


@pytest.mark.processor
def test_with_its_own_pieces_a_teacher_is_asked_what_it_always_is(
    many: Data, teacher: TextModel
) -> None:
    """Of equal vocabularies and a share of 0."""
    step = Step(many, teacher, lessons(words=0.0))
    known, size = step.teaching.teacher, teacher.tokenizer.size
    known.second_output.load_state_dict(known.first_output.state_dict())
    known.tables.own.weight.data.copy_(known.tables.first.weight)
    (beside,) = step.beside
    # A row may begin with a part of a word, which stays what it is.
    assert (as_it_stood(beside, "masked").pieces >= size).mean() < 0.05
    same = renumbered(beside, lambda pieces: pieces % size)
    (own,) = step.plain.micro_batches
    shown = as_it_stood(own, "masked").pieces
    assert np.array_equal(as_it_stood(same, "masked").pieces, shown)
    agree(step, step.losses()[MIXED], teacher.model, same)


@pytest.mark.processor
@pytest.mark.parametrize("vocabulary", ["few", "many"])
def test_with_the_students_pieces_alone_it_reads_what_the_student_reads(
    vocabulary: str, teacher: TextModel, request: pytest.FixtureRequest
) -> None:
    """Of any two vocabularies and a share of 1."""
    data: Data = request.getfixturevalue(vocabulary)
    step = Step(data, teacher, lessons(words=1.0))
    known, size = step.teaching.teacher, teacher.tokenizer.size
    theirs, ours = asdict(teacher.tokenizer.specials), asdict(data.tokenizer.specials)
    specials = {theirs[role]: piece for role, piece in ours.items()}
    for there, here in specials.items():
        known.tables.own.weight.data[here] = known.tables.first.weight[there]
    (beside,), (own,) = step.beside, step.plain.micro_batches
    same = renumbered(beside, np.vectorize(lambda piece: specials.get(piece, piece - size)))
    shown = as_it_stood(own, "masked").pieces
    assert np.array_equal(as_it_stood(same, "masked").pieces, shown)
    alone = Model(teacher.model.recipe, data.tokenizer.size)
    output = {f"output.{n}": t for n, t in known.second_output.state_dict().items()}
    table = {"encoder.embeddings.pieces.weight": known.tables.own.weight}
    alone.load_state_dict(teacher.model.state_dict() | output | table)
    agree(step, step.losses()[MIXED], alone, same)


def renumbered(batch: Batch, number: Callable[[Any], Any]) -> Batch:
    """The same in pieces of one vocabulary."""
    asked = batch.questions["masked"]
    question = replace(asked, target=number(asked.target))
    return replace(batch, pieces=number(batch.pieces), questions={"masked": question})


def agree(step: Step, found: Loss, model: Model, batch: Batch) -> None:
    expected = model.losses(TensorBatch(batch), step.recipe.objectives)["masked"]
    torch.testing.assert_close(found.sum, expected.sum, rtol=1e-5, atol=1e-5)
    assert (found.count, float(found.correct)) == (expected.count, float(expected.correct))


def test_rows_of_both_are_the_same_text(few: Data, teacher: TextModel) -> None:
    step = Step(few, teacher, lessons())
    (beside,), (own,) = step.beside, step.plain.micro_batches
    size = teacher.tokenizer.size
    read, shown = as_it_stood(beside, "masked"), as_it_stood(own, "masked")
    both = [0, 0]
    for row in range(len(read.pieces)):
        text = read.pieces[row][~read.special[row]].tolist()
        said, run = [], []
        for word in np.split(text, boundaries(read, row)):
            further = int(word[0] >= size)
            tokenizer = few.tokenizer if further else teacher.tokenizer
            said.append(tokenizer.decode([int(p) - size * further for p in word]))
            both[further] += 1
        for word in np.split(shown.pieces[row][~shown.special[row]], boundaries(shown, row)):
            run.append(few.tokenizer.decode(word.tolist()))
        assert said == run
    assert min(both) > 0.3 * sum(both)


def boundaries(rows, row: int) -> np.ndarray:
    word = rows.coordinates.word[row][~rows.special[row]]
    return np.flatnonzero(word[1:] != word[:-1]) + 1


def test_micro_batches_are_mixed_as_the_whole(few: Data, teacher: TextModel) -> None:
    whole = Step(few, teacher, lessons())
    parts = Step(few, teacher, lessons(), "micro_batch_tokens=64")
    assert len(parts.beside) > 1
    (one,) = whole.beside
    assert np.array_equal(np.concatenate([own.pieces for own in parts.beside]), one.pieces)
    assert parts.step.counts[MIXED] == whole.step.counts[MIXED]
    assert parts.step.counts[VARIABLES] == len(parts.beside)
    later = Step(few, teacher, lessons(), place=Place(4, 0.6, rows=8))
    assert not np.array_equal(later.beside[0].pieces, one.pieces)


@pytest.mark.parametrize("name", LEARNING)
@pytest.mark.processor
def test_what_learns_is_what_the_lessons_say(few: Data, teacher: TextModel, name: str) -> None:
    step = Step(few, teacher, lessons(name), *NARROW)
    losses, weights = step.losses(), step.teaching.weights(step.place)
    assert set(weights) <= set(losses)
    weights["masked"] = step.teaching.share(step.place)
    sum(w * losses[n].sum / step.step.counts[n] for n, w in weights.items()).backward()
    for own, parameter in step.student.named_parameters():
        learns = parameter.grad is not None and bool(parameter.grad.any())
        if own.startswith("teaching."):
            assert learns, own
        elif name == "mixed-vocabulary":
            assert learns == own.endswith("pieces.weight"), own
        else:
            assert learns, own


@pytest.mark.parametrize("name", LEARNING)
def test_a_run_goes_on_bit_for_bit_and_keeps_the_student_alone(
    few: Data, teacher: TextModel, tmp_path: Path, name: str
) -> None:
    recipe = small("bert", *BERT, *NARROW, "steps=4", "checkpoint_every=2")
    said = Lessons.load(name).of(teacher)
    whole = pretrain(recipe, few, tmp_path / "whole", teacher=said, quiet=True)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr("bertwright.training.checkpoints.Checkpoints._prune", stop)
        pretrain(recipe, few, tmp_path / "parts", teacher=said, quiet=True)
    again = pretrain(recipe, few, tmp_path / "parts", teacher=said, quiet=True, resume=True)
    first, second = (load_file(p.path / "model.safetensors") for p in (whole, again))
    assert all(torch.equal(first[key], second[key]) for key in first)
    alone = load(whole.path)
    assert alone.tokenizer.hash == few.tokenizer.hash
    assert dict(alone.model.state_dict()).keys() == first.keys()
    assert len(alone.model.embedding) == few.tokenizer.size
    assert not [key for key in first if "teach" in key]
    assert alone.fill_mask(f"the {alone.tokenizer.piece(alone.tokenizer.specials.mask)} river")
    # The second stage is a training like any other.
    further = small("bert", *BERT, *NARROW, "steps=1")
    pretrain(further, few, tmp_path / "alone", start_from=whole.path, quiet=True)


class Stopped(Exception):
    """Behind the first checkpoint."""


def stop(*_: object) -> None:
    raise Stopped


@pytest.mark.processor
def test_a_mapped_table_is_the_students(few: Data, teacher: TextModel) -> None:
    step = Step(few, teacher, lessons("mixed-vocabulary"), *NARROW)
    tables = step.teaching.teacher.tables
    assert isinstance(tables, TwoTables)
    pieces = torch.tensor([[1, teacher.tokenizer.size + 3]])
    vectors = tables(pieces)[0]
    assert torch.equal(vectors[0], teacher.model.embedding[1])
    torch.testing.assert_close(vectors[1], tables.map(step.student.embedding[3]))
    assert tables.first.weight is next(tables.parameters())


def variables(width: int, seed: int) -> Variables:
    choice = small("bert", *BERT, f"encoder.width={width}", "encoder.mixer.head_width=8").encoder
    encoder = Encoder(choice, 30)
    initialise(encoder, choice.initialisation, seed)
    return variables_of(encoder=encoder)


def test_equal_variables_are_not_apart_and_need_no_matrix() -> None:
    same, other = variables(32, 0), variables(32, 1)
    projections = SharedProjections(same, same)
    assert list(projections.parameters()) == []
    assert projections().item() == 0.0
    for name, (own, _) in other.items():
        own.data.copy_(same[name][0] + 1.0)
    assert SharedProjections(other, same)().item() == pytest.approx(2.0, rel=1e-5)


def test_all_layers_share_their_matrices() -> None:
    small_one, large_one = variables(16, 0), variables(32, 1)
    projections = SharedProjections(small_one, large_one)
    projections.begin(0)
    shapes = {name: tuple(p.shape) for name, p in projections.named_parameters()}
    assert shapes == {
        "rows.16-of-32": (16, 32),
        "rows.64-of-128": (64, 128),
        "columns.16-of-32": (16, 32),
        "columns.64-of-128": (64, 128),
    }
    projections().backward()
    assert all(p.grad.any() for p in projections.parameters())


def test_variables_that_are_led_up_by_orthogonal_matrices_are_not_apart() -> None:
    """t = U' s V for rows of U and V that are orthonormal: then s = U t V'."""
    own, larger = variables(16, 0), variables(32, 1)
    projections = SharedProjections(own, larger)
    projections.begin(0)
    for matrix in projections.parameters():
        matrix.data = torch.linalg.qr(matrix.data.T).Q.T.contiguous()
    apart = projections().item()
    led = dict(projections.named_parameters())
    for name, (there, parts) in larger.items():
        here = own[name][0].detach()
        here = here.view(parts, len(here) // parts, -1)
        rows = led.get(f"rows.{here.shape[1]}-of-{len(there) // parts}")
        columns = led.get(f"columns.{here.shape[2]}-of-{there[0].numel()}")
        up = here if rows is None else rows.T @ here
        there.data.copy_((up if columns is None else up @ columns).reshape(there.shape))
    assert projections().item() < 1e-12 < apart


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("encoder.depth.layers=1",), "on one side only"),
        (("objectives={word-order: {}}",), "changes it"),
        (("assembly.length=1024", "encoder.positions.size=1024"), "reads rows of 512"),
        (
            ("objectives.next-sentence={}", "phases=[{}, {objectives: {next-sentence: {}}}]"),
            "in every step",
        ),
    ],
)
def test_who_cannot_learn_together_is_told_why(
    few: Data, teacher: TextModel, changes: tuple[str, ...], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        Step(few, teacher, lessons(), *changes)


def test_lessons_say_one_way() -> None:
    for stated in (
        {},
        {"together": {}, "around": True},
        {"stages": [{"signals": ["outputs"]}], "together": {}},
    ):
        with pytest.raises(ValueError, match="either stages"):
            Lessons.model_validate({"about": "", "source": "", **stated})
