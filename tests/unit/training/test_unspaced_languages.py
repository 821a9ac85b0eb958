"""Text without spaces, and text that gives an objective nothing to predict."""

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.tokenization.tokenizer import ByteBpeConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.objectives.masked import MaskedLM
from bertwright.objectives.objective import Objective
from bertwright.objectives.sentence_relation import NextSentence
from bertwright.training.clock import DecisionLog, TrainingClock
from bertwright.training.diagnostics.doctor.batch_samples import SampledBatches, sample_batches
from bertwright.training.diagnostics.doctor.diagnostic import Diagnostic
from bertwright.training.diagnostics.doctor.target_checks import check_targets
from bertwright.training.evaluation.evaluator import HeldOutEvaluator
from bertwright.training.evaluation.held_out import make_held_out_evaluation
from bertwright.training.evaluation.masked_words import iter_masked_words
from bertwright.training.pretraining_batches import PretrainingBatches
from bertwright.training.run_warnings import RunWarnings
from small_recipe import small
from toy_stories import stories

THAI = "ภาษาไทยเป็นภาษาที่มีระดับเสียงของคำแน่นอน ประเทศไทยใช้เป็นภาษาราชการ และมีผู้พูดจำนวนมาก "
CHINESE = "北京是中华人民共和国的首都。位于华北平原的北部。全市面积一万六千多平方公里、历史悠久。"
JAPANESE = (
    "日本語は、日本国内や日本人同士の間で使用されている言語である。カタカナとひらがなを使う。"
)


def dna(line: int, length: int = 400) -> str:
    return "".join(random.Random(line).choices("acgt", k=length))


def shifted(text: str, by: int) -> str:
    """Rotate a text, so that documents differ."""
    return text[by % len(text) :] + text[: by % len(text)]


TEXTS = {
    "dna": [dna(n) for n in range(60)],
    "thai": [shifted(THAI * 3, 7 * n).strip() for n in range(60)],
    "chinese": [shifted(CHINESE * 3, 5 * n) for n in range(60)],
    "japanese": [shifted(JAPANESE * 3, 5 * n) for n in range(60)],
    "one long word": [dna(0, 60_000)],
    "one sentence": ["The quick brown fox jumps over the lazy dog ."],
}


def prepared(folder: Path, texts: list[str], heldout: float = 0.2) -> Dataset:
    (folder / "text.txt").write_text("\n\n".join(texts))
    tokenizer = train_tokenizer(texts, ByteBpeConfig(vocab_size=290))
    return prepare(folder / "text.txt", folder / "data", tokenizer, heldout=heldout, num_workers=1)


@pytest.fixture(scope="module", params=TEXTS)
def data(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    texts = TEXTS[request.param]
    folder = tmp_path_factory.mktemp("unspaced")
    return prepared(folder, texts, heldout=0.0 if request.param.startswith("one") else 0.2)


@pytest.fixture(scope="module")
def stories_data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return prepared(tmp_path_factory.mktemp("stories"), stories(60))


SELECTIONS = ["tokens", "whole-words", "spans", "n-grams"]
NOISINGS = ["infilling", "sentinels", "fragment"]


@pytest.mark.parametrize("selection", SELECTIONS)
def test_the_doctor_accepts_the_masking_rate(data: Dataset, selection: str) -> None:
    masked = f"phases=[{{objectives: {{masked: {{selection: {{kind: {selection}}}}}}}}}]"
    recipe = small("bert", masked)
    objectives = recipe.objectives_of(0)
    samples = sample_batches(recipe, data, 0)
    targets = samples.batch.targets["masked"]
    assert targets.weights.reshape(len(samples.batch.token_ids), -1).any(axis=1).all()
    checks = {d.check: d for d in check_targets(samples, objectives, data.tokenizer)}
    assert checks["masks.masking-rate"].severity == "ok"
    assert checks["masks.targets"].severity == "ok"
    if samples.batch.num_tokens > 1000:  # a single sentence has few positions to mask
        assert checks["masks.repetition"].severity == "ok"


@pytest.mark.parametrize("noising", NOISINGS)
def test_the_doctor_accepts_the_noising_rate(data: Dataset, noising: str) -> None:
    assembly = "assembly={kind: doc-sentences, length: 32}"
    recipe = small("t5", assembly, f"objectives.denoising.noising={{kind: {noising}}}")
    samples = sample_batches(recipe, data, 0)
    checks = {d.check: d for d in check_targets(samples, recipe.objectives_of(0), data.tokenizer)}
    assert checks["masks.masking-rate"].severity == "ok" or samples.batch.num_tokens < 100


def test_a_word_longer_than_a_window_is_predicted_in_parts(tmp_path: Path) -> None:
    """Every token and every byte counts once."""
    data = prepared(tmp_path, [dna(n) for n in range(80)], heldout=0.5)
    split, specials = data.split("heldout"), data.tokenizer.special_tokens
    rounds = list(iter_masked_words(split, specials, specials.start, 16, 10**6))
    num_bytes = sum(masked.num_bytes for masked in rounds)
    assert num_bytes > 0
    assert num_bytes % 400 == 0
    tokens = [
        m.sequences.token_ids[np.arange(len(m.sequences.token_ids))[:, None], m.selection.positions]
        for m in rounds
    ]
    targets = [t[m.selection.weights > 0] for t, m in zip(tokens, rounds, strict=True)]
    text = "".join(data.tokenizer.decode(ids.tolist()) for ids in targets)
    assert len(text) == num_bytes


class Silent(NextSentence):
    """Never has a target."""

    def make_targets(self, batch, context):  # type: ignore[no-untyped-def]
        batch, targets = super().make_targets(batch, context)
        targets.weights[:] = 0
        return batch, targets


class Both:
    """A recipe's objectives, one of them without targets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.recipe = small("bert")
        objectives: Mapping[str, Objective] = {"masked": MaskedLM(), "next-sentence": Silent()}
        self.objectives = {name: objectives[name] for name in names}
        monkeypatch.setattr(type(self.recipe), "objectives_of", lambda *_: self.objectives)


def test_training_rejects_an_objective_without_targets(
    stories_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Both(monkeypatch, "masked", "next-sentence").recipe
    with pytest.raises(UserError, match=r"objectives\.next-sentence has no target"):
        PretrainingBatches(recipe, stories_data).check_data()


def test_evaluation_skips_objectives_without_targets_and_warns(
    stories_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Both(monkeypatch, "masked", "next-sentence").recipe
    evaluation = make_held_out_evaluation(recipe, 0, stories_data, 500)
    assert evaluation.objectives_without_targets == ("next-sentence",)
    messages: list[str] = []
    warnings = RunWarnings(DecisionLog(), messages.append)
    evaluator = HeldOutEvaluator(
        recipe,
        stories_data,
        None,
        TrainingClock(1),
        warnings,
        messages.append,  # type: ignore[arg-type]
    )
    evaluator._evaluation_of(0)
    assert "no target for next-sentence" in messages[0]


def test_evaluation_rejects_text_without_any_target(
    stories_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = Both(monkeypatch, "next-sentence").recipe
    with pytest.raises(UserError, match=r"no target for objectives\.next-sentence"):
        make_held_out_evaluation(recipe, 0, stories_data, 500)


def test_the_doctor_reports_missing_targets(
    stories_data: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Both(monkeypatch, "masked", "next-sentence")
    samples: SampledBatches = sample_batches(both.recipe, stories_data, 0)
    for targets in samples.batch.targets.values():
        targets.weights[:] = 0
    results: list[Diagnostic] = check_targets(samples, both.objectives, stories_data.tokenizer)
    assert [d.severity for d in results] == ["error", "error"]
    assert all("no target" in d.message for d in results)
