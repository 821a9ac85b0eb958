"""finetune, predict, evaluate, fill-mask, embed and minimal-pairs from a shell."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, TEXTS, classes, tagged


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and the files of a task."""
    folder = tmp_path_factory.mktemp("use")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer).save(folder / "model")
    rows = [f"{e.first}\t{e.label}\n" for e in classes()]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("text\tlabel\n" + "".join(rows))
    words = ["".join(f"{w} {t}\n" for w, t in zip(s.words, s.tags, strict=True)) for s in tagged()]
    (folder / "words.conll").write_text("\n".join(words))
    invoke(
        "finetune",
        folder / "model",
        "--train",
        folder / "train.tsv",
        "--dev",
        folder / "dev.tsv",
        "-o",
        folder / "tuned",
        "epochs=2",
    )
    return folder


def invoke(*words: Any, given: str | None = None) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def printed(*words: Any, given: str | None = None) -> Any:
    return json.loads(invoke(*words, "--json", given=given).stdout)


def test_finetune_prints_what_was_promised(folder: Path, tmp_path: Path) -> None:
    found = printed(
        "finetune",
        folder / "model",
        "--tags",
        "tag",
        "--train",
        folder / "words.conll",
        "-o",
        tmp_path / "out",
        "--epochs",
        1,
        "--seeds",
        2,
        "dropout=0.2",
        "head.kind=plain",
        "head.read=places",
    )
    assert set(found) >= {"task", "metric", "scores", "mean", "interval"}
    assert (found["task"], found["metric"], len(found["scores"])) == ("tag", "span-f1", 2)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_predict_answers_standard_input(folder: Path) -> None:
    said = invoke("predict", folder / "tuned", given="\n".join(TEXTS[:3]) + "\n").stdout
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["text"] for line in lines] == TEXTS[:3]


def test_predict_writes_a_file(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "said.jsonl"
    invoke("predict", folder / "tuned", folder / "train.tsv", "-o", out)
    assert len(out.read_text().splitlines()) == len(TEXTS)


def test_evaluate_scores_a_task(folder: Path) -> None:
    found = printed("evaluate", folder / "tuned", "--data", folder / "train.tsv")
    assert set(found) > {"task", "metric", "score", "metrics", "examples", "intervals"}
    assert found["baselines"][0]["baseline"] == "majority class"
    assert (found["task"], found["metric"]) == ("train", "accuracy")


def test_fill_mask_names_pieces(folder: Path) -> None:
    found = printed("fill-mask", folder / "model", "The [MASK] bird is [MASK]", "--top-k", 3)
    assert [len(place) for place in found["masks"]] == [3, 3]
    assert set(found["masks"][0][0]) == {"piece", "probability"}
    assert "%" in invoke("fill-mask", folder / "model", "The [MASK]").stdout


@pytest.mark.parametrize(("pooling", "layers", "width"), [("mean", "last-2", 64), ("cls", "1", 32)])
def test_embed_writes_vectors(
    folder: Path, tmp_path: Path, pooling: str, layers: str, width: int
) -> None:
    out = tmp_path / "vectors.npy"
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    found = printed(
        "embed",
        folder / "model",
        tmp_path / "texts.txt",
        "-o",
        out,
        "--pooling",
        pooling,
        "--layers",
        layers,
        "--normalise",
    )
    assert found == {"file": str(out), "texts": len(TEXTS), "width": width}
    vectors = np.load(out)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)


def test_embed_answers_standard_input(folder: Path) -> None:
    said = invoke("embed", folder / "model", given="The red bird\nThe tree\n").stdout
    lines = [json.loads(line) for line in said.splitlines()]
    assert [line["text"] for line in lines] == ["The red bird", "The tree"]
    assert len(lines[0]["vector"]) == 32


def test_minimal_pairs_prints_what_was_promised(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    row = {"sentence_good": "The red bird", "sentence_bad": "The bird red", "UID": "order"}
    file.write_text(json.dumps(row) + "\n")
    found = printed("minimal-pairs", folder / "model", file)
    assert set(found) == {"accuracy", "ties", "pairs", "interval", "paradigms"}
    assert list(found["paradigms"]) == ["order"]
    assert "accuracy" in invoke("minimal-pairs", folder / "model", file).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("predict", "model", "train.tsv"), "is not fine-tuned for a task"),
        (("predict", "elsewhere", "train.tsv"), "there is no model folder"),
        (("evaluate", "tuned", "--data", "elsewhere.tsv"), "no such file"),
        (("embed", "model", "train.tsv", "--json"), "name a file with -o"),
        (("finetune", "model", "--task", "colla", "--data", "model", "-o", "x"), "no task 'colla'"),
        (
            ("finetune", "model", "--train", "train.tsv", "--label", "lable", "-o", "x"),
            "no column 'lable': did you mean 'label'",
        ),
        (("finetune", "model", "--train", "train.tsv", "-o", "x", "epoch=1"), "no key 'epoch'"),
        (("minimal-pairs", "model", "train.tsv"), "line 1 is not JSON"),
        (
            ("finetune", "model", "--task", "cola", "--label", "x", "-o", "x"),
            "--task cola says what is read and asked: leave --label out",
        ),
        (
            ("finetune", "model", "--tags", "upos", "--pair", "x", "-o", "x"),
            "--tags reads words and their tags: leave --pair out",
        ),
        (("finetune", "model", "--tags", "rte", "-o", "x"), "no column 'rte'"),
        (("finetune", "model", "--train", "train.tsv", "-o", "/proc/x"), "^/proc/x cannot be made"),
        (("compress", "tuned", "--train", "train.tsv", "-o", "/proc/x"), "^/proc/x cannot be made"),
        (("compress", "--check", "--picture", "/proc/x"), "^/proc/x cannot be made"),
        (("bench", "embed", "--document", "/proc/x"), "^/proc/x cannot be made"),
        (("predict", "tuned", "train.tsv", "--jsonl"), "a file says by its ending what it holds"),
        (("predict", "tuned", "train.tsv", "-o", "model"), "model is a folder: name a file"),
        (("fill-mask", "model", "red " * 600 + "[MASK]"), "hides places behind the 512 pieces"),
        (("embed", "model", "train.tsv", "-o", "model"), "model is a folder: name a file"),
        (("prepare", "train.tsv", "--item", "label", "--capitals", "-o", "x"), "not texts: leave"),
        (
            ("prepare", "train.tsv", "--dialogue-column", "turns", "-o", "x"),
            "there are none: leave",
        ),
        (
            ("prepare", "train.tsv", "--least", "3", "-o", "x"),
            "--item asks for: leave --least",
        ),
        (("study", "run", "sharing", "--budget", "abc", "-o", "x"), "90s, 20m or 1.5h"),
        (("compare", "a", "b", "--data", "x", "-o", "x", "--budget", "1"), "90s, 20m or 1.5h"),
        (("bench", "attention", "--lengths", "128,x"), "--lengths 128,x: write numbers"),
    ],
)
def test_a_mistake_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        invoke(*words)
    assert not (folder / "x").exists()
