"""``evaluate``, ``fill-mask``, ``embed`` and ``minimal-pairs``, and mistakes of many verbs."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import load_npz

from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.testing.toy import toy_text_model
from commands import invoke, invoke_json
from small_tasks import TEXTS


def test_evaluate_scores_a_task(folder: Path, tuned: Path) -> None:
    result = invoke_json("evaluate", tuned, "--data", folder / "train.tsv")
    assert set(result) > {"task", "metric", "score", "metrics", "examples", "intervals"}
    assert result["baselines"][0]["baseline"] == "majority class"
    assert (result["task"], result["metric"]) == ("train", "accuracy")


def test_fill_mask_predicts_tokens(folder: Path) -> None:
    result = invoke_json("fill-mask", folder / "model", "The [MASK] bird is [MASK]", "--top-k", 3)
    assert [len(predictions) for predictions in result["masks"]] == [3, 3]
    assert set(result["masks"][0][0]) == {"token", "probability"}
    assert "%" in invoke("fill-mask", folder / "model", "The [MASK]").stdout


@pytest.mark.parametrize(("pooling", "layers", "width"), [("mean", "last-2", 64), ("cls", "1", 32)])
def test_embed_writes_normalised_vectors(
    folder: Path, tmp_path: Path, pooling: str, layers: str, width: int
) -> None:
    output = tmp_path / "vectors.npy"
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    result = invoke_json(
        "embed", folder / "model", tmp_path / "texts.txt", "-o", output,
        "--pooling", pooling, "--layers", layers, "--normalise",
    )  # fmt: skip
    assert result == {"file": str(output), "texts": len(TEXTS), "width": width}
    vectors = np.load(output)
    assert vectors.shape == (len(TEXTS), width)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)


def test_embed_prints_json_lines(folder: Path) -> None:
    printed = invoke("embed", folder / "model", stdin="The red bird\nThe tree\n").stdout
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["text"] for line in lines] == ["The red bird", "The tree"]
    assert len(lines[0]["vector"]) == 32


def test_embed_puts_a_prompt_before_texts_of_a_stated_role(tmp_path: Path) -> None:
    model = toy_text_model(TEXTS, 'vectors.prompts={"query": "red ", "document": "old "}')
    model.save(tmp_path / "model")
    roles = {(): "", ("--as", "query"): "red ", ("--as", "document"): "old "}
    for options, prompt in roles.items():
        printed = invoke("embed", tmp_path / "model", *options, stdin="the tree\n").stdout
        record = json.loads(printed)
        assert record["text"] == "the tree"
        expected = load(tmp_path / "model").embed(f"{prompt}the tree")[0]
        np.testing.assert_allclose(record["vector"], expected, atol=1e-5)


def test_embed_writes_the_representations_of_retrieval(folder: Path, tmp_path: Path) -> None:
    pairs = [{"text": text.split()[1], "pair": text} for text in TEXTS]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (tmp_path / "texts.txt").write_text("The red bird\nThe tree\n")
    settings = {
        "sparse": ("--output-type", "sparse"),
        "late-interaction": ("output_type.kind=late-interaction", "output_type.dimension=8"),
    }
    for kind, options in settings.items():
        model, output = tmp_path / kind, tmp_path / f"{kind}.npz"
        data = ("--train", tmp_path / "pairs.jsonl", "--epochs", 0, "-o", model)
        result = invoke_json("finetune", folder / "model", "--task", "retrieval", *options, *data)
        assert result["metric"] == "ndcg@10"
        encoder = load(model).retrieval_encoder()
        written = invoke_json("embed", model, tmp_path / "texts.txt", "-o", output)
        assert (written["texts"], written["width"]) == (2, encoder.width)
        command = ("embed", model, tmp_path / "texts.txt", "--as", "query")
        lines = [json.loads(line) for line in invoke(*command).stdout.splitlines()]
        if kind == "sparse":
            weights = encoder.encode_documents(["The red bird", "The tree"])
            assert abs(load_npz(output) - weights).max() < 1e-6
            values = list(lines[0]["weights"].values())
            assert values == sorted(values, reverse=True)
        else:
            stored = np.load(output)
            vectors = encoder.encode_documents(["The red bird", "The tree"])
            assert stored["lengths"].tolist() == [len(matrix) for matrix in vectors]
            np.testing.assert_allclose(stored["vectors"], np.concatenate(vectors), atol=1e-6)
            assert len(lines[1]["vectors"]) == 32
        with pytest.raises(UserError, match="representations of its own: leave --layers out"):
            invoke("embed", model, tmp_path / "texts.txt", "--layers", "1")
    with pytest.raises(
        UserError, match=r"class: is no representation of texts .known: late-interaction"
    ):
        invoke("finetune", folder / "model", "--task", "retrieval", "--output-type", "class",
               "--train", tmp_path / "pairs.jsonl", "-o", tmp_path / "no")  # fmt: skip


def test_neighbours_of_imported_word_vectors(tmp_path: Path) -> None:
    (tmp_path / "vectors.txt").write_text("bird 1 0\ntree 0.9 0.1\nred 0 1\n")
    (tmp_path / "texts.txt").write_text("The red tree. A bird is red.")
    model = tmp_path / "model"
    imported = invoke_json("import", tmp_path / "vectors.txt", "-o", model)
    assert (imported["vocabulary"], imported["omitted_words"]) == (8, 0)
    command = ("neighbours", model, "One [bird]", "--text", tmp_path / "texts.txt", "-n", 2)
    result = invoke_json(*command)
    assert set(result) == {"results", "sentences", "words"}
    nearest = [neighbour["sentence"] for neighbour in result["results"][0]["neighbours"]]
    assert nearest == ["A [bird] is red.", "The red [tree]."]
    static = [neighbour["token"] for neighbour in result["results"][0]["static_neighbours"]]
    assert static == ["tree", "red"]
    assert "static: tree" in invoke(*command).stdout


@pytest.mark.parametrize(
    "command",
    ["vocab show MODEL --text TEXTS", "whiten MODEL TEXTS -o OUT",
     "static MODEL TEXTS -o OUT"],
)  # fmt: skip
def test_bytes_that_are_no_text_are_counted(folder: Path, tmp_path: Path, command: str) -> None:
    texts = [f"bird {n} in tree {n % 3}\n".encode() for n in range(40)]
    (tmp_path / "texts.txt").write_bytes(b"".join(texts) + b"caf\xe9 red\0 birds\n")
    names = {"MODEL": folder / "model", "TEXTS": tmp_path / "texts.txt", "OUT": tmp_path / "out"}
    result = invoke(*(names.get(word, word) for word in command.split()))
    assert "the texts hold 2 invalid or NUL bytes: convert them to UTF-8" in result.stderr


def test_minimal_pairs_report_accuracy_by_paradigm(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "pairs.jsonl"
    pair = {"sentence_good": "The red bird", "sentence_bad": "The bird red", "UID": "order"}
    file.write_text(json.dumps(pair) + "\n")
    result = invoke_json("minimal-pairs", folder / "model", file)
    assert set(result) == {"accuracy", "ties", "pairs", "interval", "paradigms"}
    assert list(result["paradigms"]) == ["order"]
    assert "accuracy" in invoke("minimal-pairs", folder / "model", file).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("predict model train.tsv", "is not fine-tuned for a task: run bertwright finetune"),
        ("predict elsewhere train.tsv", "no model folder"),
        ("predict tuned train.tsv --jsonl", "is that of its name: leave --jsonl out"),
        ("predict tuned train.tsv -o model", "model is a folder: name a file"),
        ("predict tuned train.tsv --resume", "--resume continues a file: name it with -o"),
        ("evaluate tuned --data elsewhere.tsv", "no such file"),
        ("embed model train.tsv --json", "describes a file: name it with -o"),
        ("embed model train.tsv -o model", "model is a folder: name a file"),
        ("embed model train.tsv -o vectors.jsonl", "vectors.jsonl: -o writes arrays, not text"),
        ("embed model train.tsv -o vectors.npz", "written as .npy: name a .npy file"),
        ("embed model train.tsv -o vectors.npy --chunk-tokens 4", "name a .npz file"),
        ("evaluate elsewhere --data train.tsv --errors model", "model is a folder: name a file"),
        ("minimal-pairs model train.tsv", "line 1 is not JSON"),
        ("finetune model --train train.tsv -o /proc/x", "^/proc/x cannot be created"),
        ("compress distil tuned --train train.tsv -o /proc/x", "^/proc/x cannot be created"),
        ("pareto tuned --data train.tsv --plot /proc/x", "^/proc/x cannot be created"),
        (
            "prepare train.tsv --item label --capitals -o x",
            "not texts: leave --capitals",
        ),
        ("prepare train.tsv --dialogue-column turns -o x", "leave --dialogue-column out"),
        ("prepare train.tsv --min-events 3 -o x", "which --item reads: leave --min-events out"),
        ("study run parameter-sharing --budget abc -o x", "90s, 20m or 1.5h"),
        ("study run dropout --max-seeds 9 -o x", "--max-seeds limits --until decided"),
        ("study run dropout --until decided --max-seeds 0 -o x", "--max-seeds 0: must be"),
        ("study run dropout parameter-sharing dropout -o x", "two studies are called dropout"),
        ("compare a b --data x -o x --budget 1", "90s, 20m or 1.5h"),
        ("compare ./a b --data x -o x", "there is no file a"),
        ("compare a b --data x -o x --override seed=3", "changes: the study sets seed"),
    ],
)
def test_a_mistake_is_named(
    folder: Path, tuned: Path, monkeypatch: pytest.MonkeyPatch, words: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message):
        invoke(*words.split())
    assert not (folder / "x").exists()


def test_a_mask_after_the_maximum_length_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="the text has masks after the model's 512 tokens"):
        invoke("fill-mask", folder / "model", "red " * 600 + "[MASK]")
