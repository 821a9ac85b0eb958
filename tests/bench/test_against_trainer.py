"""Fine-tuning against the Trainer: both sides learn the same rows, and are scored alike."""

import csv
import json
from functools import partial
from pathlib import Path

import pytest
import yaml
from transformers import BertConfig, BertModel

from bertwright.bench.finetuning import comparing, peer
from bertwright.bench.finetuning.plan import Plan
from bertwright.errors import UserError
from bertwright.interop.huggingface.tokenizer_writing import write_tokenizer
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from small_tasks import ENGLISH, classes, numbers, options, questions, tagged

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "against-trainer.yaml"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small stock encoder with its tokenizer."""
    folder = tmp_path_factory.mktemp("trainer") / "encoder"
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=120))
    config = BertConfig(
        vocab_size=tokenizer.size,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        pad_token_id=tokenizer.specials.pad,
    )
    BertModel(config).save_pretrained(folder)
    write_tokenizer(folder, tokenizer, True, 512, 1, None)
    return folder


def written(folder: Path) -> dict[str, dict[str, str]]:
    """The files of one task of every kind."""
    folders = {name: folder / name for name in ("sst-2", "sts-b", "ner", "squad2", "codah")}
    for own in folders.values():
        own.mkdir(parents=True)
    for part in ("train", "dev"):
        rows = [f"{e.first}\t{'01'[e.label == 'old']}" for e in classes()]
        (folders["sst-2"] / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
        rows = [f"{e.first}\t{e.first}\t{e.label}" for e in numbers()]
        header = "sentence1\tsentence2\tscore"
        (folders["sts-b"] / f"{part}.tsv").write_text("\n".join([header, *rows]))
        words = [
            "\n".join(f"{w} {t}" for w, t in zip(s.words, s.tags or (), strict=True))
            for s in tagged()
        ]
        (folders["ner"] / f"{part}.conll").write_text("\n\n".join(words) + "\n")
        data = [
            {
                "context": q.text,
                "qas": [
                    {
                        "id": q.identity,
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
        whole = {"data": [{"title": "", "paragraphs": data}]}
        (folders["squad2"] / f"{part}.json").write_text(json.dumps(whole))
        with open(folders["codah"] / f"{part}.tsv", "w", encoding="utf-8") as opened:
            writer = csv.writer(opened, delimiter="\t", lineterminator="\n")
            for option in options():
                ways = [*option.options, *["x"] * (4 - len(option.options))]
                writer.writerow(["o", option.first, *ways, option.label])
    return {name: {"task": name, "data": str(own)} for name, own in folders.items()}


def test_both_sides_learn_every_kind_of_task(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer, "fast", lambda: peer.AS_IT_IS)
    tasks = {
        name: {**stated, "epochs": 1, "batch": 8, "rate": 1e-3, "length": 32}
        for name, stated in written(tmp_path / "data").items()
    }
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump({"encoder": str(encoder), "seeds": 2, "tasks": tasks}))
    plan = Plan.load(file)
    for task, compared in plan.tasks.items():
        ours = comparing.ours(plan, compared, 0)
        theirs = comparing.theirs(plan, compared, 0)
        assert -1 <= ours <= 1, task
        assert -1 <= theirs <= 1, task


def test_the_example_can_be_read() -> None:
    assert len(Plan.load(EXAMPLE).tasks) == 11


def test_what_was_found_is_not_found_again(encoder: Path, tmp_path: Path, monkeypatch) -> None:
    found: list[str] = []

    def score(*given, side: str) -> float:
        found.append(side)
        return 0.5 + 0.01 * given[-1]

    def times(plan_file: Path, task: str, rounds: int) -> dict[str, float]:
        found.append("times")
        return {"epoch_seconds": 1.0, "against_default": 4.0, "against_best": 2.0}

    sides = {side: partial(score, side=side) for side in ("ours", "theirs")}
    monkeypatch.setattr(comparing, "SIDES", sides)
    monkeypatch.setattr(comparing, "times", times)
    file, stated = tmp_path / "plan.yaml", written(tmp_path / "data")["sst-2"]

    def rows(parts: list[str], **changes) -> list:
        found.clear()
        tasks = {"sst-2": {**stated, **changes}}
        file.write_text(yaml.safe_dump({"encoder": str(encoder), "seeds": 2, "tasks": tasks}))
        return comparing.compare(file, tmp_path / "out", parts, 1, lambda line: None)

    (row,) = rows(["times"])
    assert found == ["times"]
    assert "ours" not in row
    (row,) = rows(["scores", "times"])
    assert found == ["ours", "ours", "theirs", "theirs"]
    assert (row["equal"], row["against_best"]) == ("yes", 2.0)
    assert rows(["scores", "times"]) == [row]
    assert not found
    rows(["scores", "times"], timed=64)
    assert found == ["times"]
    rows(["scores"], rate=1e-3)
    assert found == ["ours", "ours", "theirs", "theirs"]
    with pytest.raises(UserError, match="write scores, times"):
        rows(["speed"])
