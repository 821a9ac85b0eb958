"""Fine-tuning against the Trainer: both sides learn every task, and results are kept."""

import csv
import json
from functools import partial
from pathlib import Path

import pytest
import yaml
from transformers import BertConfig, BertModel

from benchmarks.finetuning import compare as finetuning
from benchmarks.finetuning import trainer as peer
from benchmarks.finetuning.plan import FineTuningPlan
from bertwright.batches.formats.pairs import SegmentPair
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.huggingface.tokenizer.writer import write_tokenizer
from checkout import EXAMPLES
from small_tasks import ENGLISH, classes, numbers, options, questions, tagged

EXAMPLE = EXAMPLES / "against-trainer.yaml"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a small stock encoder with its tokenizer."""
    folder = tmp_path_factory.mktemp("trainer") / "encoder"
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=120))
    config = BertConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        pad_token_id=tokenizer.special_tokens.pad,
    )
    BertModel(config).save_pretrained(folder)
    write_tokenizer(folder, tokenizer, SegmentPair(), True, 512)
    return folder


def write_tasks(folder: Path) -> dict[str, dict[str, str]]:
    """Write the files of a task of every output type; return their plan."""
    folders = {name: folder / name for name in ("sst-2", "sts-b", "ner", "squad2", "codah")}
    for task_folder in folders.values():
        task_folder.mkdir(parents=True)
    for part in ("train", "dev"):
        lines = [f"{e.text}\t{'01'[e.label == 'old']}" for e in classes()]
        (folders["sst-2"] / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines]))
        lines = [f"{e.text}\t{e.text}\t{e.label}" for e in numbers()]
        header = "sentence1\tsentence2\tscore"
        (folders["sts-b"] / f"{part}.tsv").write_text("\n".join([header, *lines]))
        words = [
            "\n".join(f"{w} {t}" for w, t in zip(s.words, s.tags or (), strict=True))
            for s in tagged()
        ]
        (folders["ner"] / f"{part}.conll").write_text("\n\n".join(words) + "\n")
        paragraphs = [
            {
                "context": q.text,
                "qas": [
                    {
                        "id": q.id,
                        "question": q.question,
                        "is_impossible": not q.answers,
                        "answers": [
                            {"text": a, "answer_start": s}
                            for a, s in zip(q.answers or (), q.starts, strict=True)
                        ],
                    }
                ],
            }
            for q in questions()
        ]
        squad = {"data": [{"title": "", "paragraphs": paragraphs}]}
        (folders["squad2"] / f"{part}.json").write_text(json.dumps(squad))
        with open(folders["codah"] / f"{part}.tsv", "w", encoding="utf-8") as stream:
            writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
            for option in options():
                endings = [*option.options, *["x"] * (4 - len(option.options))]
                writer.writerow(["o", option.text, *endings, option.label])
    return {name: {"task": name, "data": str(path)} for name, path in folders.items()}


@pytest.mark.full
def test_both_sides_learn_every_kind_of_task(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "fast_settings", lambda: peer.DEFAULT_SETTINGS)
    tasks = {
        name: {**task, "epochs": 1, "batch_size": 8, "learning_rate": 1e-3, "max_length": 32}
        for name, task in write_tasks(tmp_path / "data").items()
    }
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump({"encoder": str(encoder), "tasks": tasks}))
    plan = FineTuningPlan.load(file)
    for name, task in plan.tasks.items():
        assert -1 <= finetuning.bertwright_score(plan, task, 0) <= 1, name
        assert -1 <= finetuning.trainer_score(plan, task, 0) <= 1, name


def test_the_example_is_valid() -> None:
    assert len(FineTuningPlan.load(EXAMPLE).tasks) == 11


def test_undecided_tasks_get_more_seeds(encoder: Path, tmp_path: Path, monkeypatch) -> None:
    def score(*arguments, side: str) -> float:
        return 0.5 if side == "ours" else 0.5 + 0.03 * (arguments[-1] % 2)

    sides = {side: partial(score, side=side) for side in ("ours", "theirs")}
    monkeypatch.setattr(finetuning, "SIDES", sides)
    file, task = tmp_path / "plan.yaml", write_tasks(tmp_path / "data")["sst-2"]
    file.write_text(
        yaml.safe_dump({"encoder": str(encoder), "max_seeds": 6, "tasks": {"sst-2": task}})
    )
    (row,) = finetuning.compare(file, tmp_path / "out", ["scores"], 1, lambda line: None)
    assert row["seeds"] == 6
    assert row["verdict"].startswith("undecided: ")
    assert row["verdict"].endswith(" seeds would decide")


def test_results_are_computed_once(encoder: Path, tmp_path: Path, monkeypatch) -> None:
    calls: list[str] = []

    def score(*arguments, side: str) -> float:
        calls.append(side)
        return 0.5 + 0.01 * arguments[-1]

    def times(plan_file: Path, task: str, rounds: int) -> dict[str, float]:
        calls.append("times")
        return {"epoch_seconds": 1.0, "against_default": 4.0, "against_best": 2.0}

    sides = {side: partial(score, side=side) for side in ("ours", "theirs")}
    monkeypatch.setattr(finetuning, "SIDES", sides)
    monkeypatch.setattr(finetuning, "compare_epoch_times", times)
    file, task = tmp_path / "plan.yaml", write_tasks(tmp_path / "data")["sst-2"]

    def rows(parts: list[str], **changes) -> list:
        calls.clear()
        tasks = {"sst-2": {**task, **changes}}
        file.write_text(yaml.safe_dump({"encoder": str(encoder), "max_seeds": 6, "tasks": tasks}))
        return finetuning.compare(file, tmp_path / "out", parts, 1, lambda line: None)

    (row,) = rows(["times"])
    assert calls == ["times"]
    assert "ours" not in row
    (row,) = rows(["scores", "times"])
    assert calls == [*["ours"] * 3, *["theirs"] * 3]
    assert (row["verdict"], row["seeds"]) == ("no difference of 0.01 or more", 3)
    assert row["against_best"] == 2.0
    assert rows(["scores", "times"]) == [row]
    assert not calls
    rows(["scores", "times"], timed_steps=64)
    assert calls == ["times"]
    rows(["scores"], learning_rate=1e-3)
    assert calls == [*["ours"] * 3, *["theirs"] * 3]
    with pytest.raises(UserError, match="write scores, times"):
        rows(["speed"])
