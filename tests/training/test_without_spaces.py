"""Text without spaces, and text that gives an objective nothing to predict."""

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from small_recipe import small
from toy_stories import stories

from bertwright.errors import UserError
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Objective
from bertwright.objectives.sentence_relation import NextSentence
from bertwright.text.preparation import prepare
from bertwright.text.shards import Data
from bertwright.text.tokenizers import ByteBpeChoice
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.bits_per_byte import hidden_words
from bertwright.training.clock import Clock
from bertwright.training.doctor.drawing import Drawn, draw
from bertwright.training.doctor.findings import Finding
from bertwright.training.doctor.mask_checks import check_questions
from bertwright.training.evaluation import held_out
from bertwright.training.recipe_batches import RecipeBatches
from bertwright.training.watching import HeldOutWatch

THAI = "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน ประเทศไทยใช้เป็นภาษาราชการ และมีผู้พูดจำนวนมาก "
CHINESE = "北京是中华人民共和国的首都。位于华北平原的北部。全市面积一万六千多平方公里、历史悠久。"
JAPANESE = (
    "日本語は、日本国内や日本人同士の間で使用されている言語である。カタカナとひらがなを使う。"
)


def dna(line: int, length: int = 400) -> str:
    return "".join(random.Random(line).choices("acgt", k=length))


def shifted(text: str, by: int) -> str:
    """Text that is another in every document."""
    return text[by % len(text) :] + text[: by % len(text)]


TEXTS = {
    "dna": [dna(n) for n in range(60)],
    "thai": [shifted(THAI * 3, 7 * n).strip() for n in range(60)],
    "chinese": [shifted(CHINESE * 3, 5 * n) for n in range(60)],
    "japanese": [shifted(JAPANESE * 3, 5 * n) for n in range(60)],
    "one long word": [dna(0, 60_000)],
    "one sentence": ["The quick brown fox jumps over the lazy dog ."],
}


def prepared(folder: Path, texts: list[str], heldout: float = 0.2) -> Data:
    (folder / "text.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, ByteBpeChoice(size=290))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=heldout, num_workers=1)


@pytest.fixture(scope="module", params=TEXTS)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Data:
    texts = TEXTS[request.param]
    folder = tmp_path_factory.mktemp("unspaced")
    return prepared(folder, texts, heldout=0.0 if request.param.startswith("one") else 0.2)


@pytest.fixture(scope="module")
def stories_data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    return prepared(tmp_path_factory.mktemp("stories"), stories(60))


SELECTIONS = ["tokens", "whole-words", "spans", "n-grams"]
NOISINGS = ["infilling", "sentinels", "fragment"]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_doctor_finds_the_rate_that_was_asked(data: Data, selection: str) -> None:
    masked = f"phases=[{{objectives: {{masked: {{selection: {{kind: {selection}}}}}}}}}]"
    recipe = small("bert", masked)
    objectives = recipe.objectives_of(0)
    drawn = draw(recipe, data, 0)
    question = drawn.batch.questions["masked"]
    assert question.weight.reshape(len(drawn.batch.pieces), -1).any(axis=1).all()
    findings = {f.check: f for f in check_questions(drawn, objectives, data.tokenizer)}
    assert findings["masks.rate"].verdict == "ok"
    assert findings["masks.targets"].verdict == "ok"
    if drawn.batch.num_tokens > 1000:  # a single sentence has few places to be masked at
        assert findings["masks.repetition"].verdict == "ok"


@pytest.mark.parametrize("noising", NOISINGS)
def test_the_doctor_finds_the_rate_of_a_noising(data: Data, noising: str) -> None:
    assembly = "assembly={kind: doc-sentences, length: 32}"
    recipe = small("t5", assembly, f"objectives.denoising.noising={{kind: {noising}}}")
    drawn = draw(recipe, data, 0)
    findings = {f.check: f for f in check_questions(drawn, recipe.objectives_of(0), data.tokenizer)}
    assert findings["masks.rate"].verdict == "ok" or drawn.batch.num_tokens < 100


def test_a_word_longer_than_a_window_is_asked_for_in_parts(tmp_path: Path) -> None:
    """Every part of it once, and its bytes once."""
    data = prepared(tmp_path, [dna(n) for n in range(80)], heldout=0.5)
    split, specials = data.split("heldout"), data.tokenizer.specials
    rounds = list(hidden_words(split, specials, specials.start, 16, 10**6))
    num_bytes = sum(hidden.num_bytes for hidden in rounds)
    assert num_bytes > 0
    assert num_bytes % 400 == 0
    tokens = [h.rows.pieces[np.arange(len(h.rows.pieces))[:, None], h.chosen.where] for h in rounds]
    chosen = [t[h.chosen.weight > 0] for t, h in zip(tokens, rounds, strict=True)]
    spelled = "".join(data.tokenizer.decode(ids.tolist()) for ids in chosen)
    assert len(spelled) == num_bytes


class Silent(NextSentence):
    """Never has a target."""

    def ask(self, rows, asking):  # type: ignore[no-untyped-def]
        rows, question = super().ask(rows, asking)
        question.weight[:] = 0
        return rows, question


class Both:
    """A recipe's objectives, one of them without targets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.recipe = small("bert")
        known: Mapping[str, Objective] = {"masked": Masked(), "next-sentence": Silent()}
        self.objectives = {name: known[name] for name in names}
        monkeypatch.setattr(type(self.recipe), "objectives_of", lambda *_: self.objectives)


def test_training_refuses_an_objective_without_targets(
    stories_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Both(monkeypatch, "masked", "next-sentence").recipe
    with pytest.raises(UserError, match=r"objectives\.next-sentence has no target"):
        RecipeBatches(recipe, stories_data).plan()


def test_evaluation_leaves_out_what_has_no_target_and_says_so(
    stories_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Both(monkeypatch, "masked", "next-sentence").recipe
    questions = held_out(recipe, 0, stories_data, 500)
    assert questions.idle == ("next-sentence",)
    heard: list[str] = []
    watch = HeldOutWatch(recipe, stories_data, None, Clock(1), heard.append)  # type: ignore[arg-type]
    watch._of_phase(0)
    assert "no target for next-sentence" in heard[0]


def test_evaluation_refuses_text_without_any_target(
    stories_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Both(monkeypatch, "next-sentence").recipe
    with pytest.raises(UserError, match=r"no target for objectives\.next-sentence"):
        held_out(recipe, 0, stories_data, 500)


def test_the_doctor_says_that_nothing_is_asked(
    stories_data: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Both(monkeypatch, "masked", "next-sentence")
    drawn: Drawn = draw(both.recipe, stories_data, 0)
    for question in drawn.batch.questions.values():
        question.weight[:] = 0
    findings: list[Finding] = check_questions(drawn, both.objectives, stories_data.tokenizer)
    assert [f.verdict for f in findings] == ["error", "error"]
    assert all("no target" in f.seen for f in findings)
