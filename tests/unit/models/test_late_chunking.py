"""Late chunking: parts of a text are means of hidden states that have seen the whole text."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bertwright.batches.word_windows import word_windows
from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.models.text_model import TextModel
from bertwright.testing.toy import toy_text_model
from small_tasks import TEXTS

TEXT = "The red bird is old  and the brown house is new. The river!"


@pytest.fixture(scope="module")
def model() -> TextModel:
    return toy_text_model([*TEXTS, TEXT])


@pytest.mark.parametrize("system", ["bert", "xlnet", "gpt-2", "modern"])
def test_one_chunk_is_the_embedding(system: str) -> None:
    model = toy_text_model([*TEXTS, TEXT], recipe=system)
    texts = [TEXTS[0], "", "bird"]
    chunks = model.embed_chunks(texts, 100, pooling="mean")
    vectors = np.concatenate([part.vectors for part in chunks])
    np.testing.assert_allclose(vectors, model.embed(texts, "mean"), atol=1e-5)
    assert [part.offsets.tolist() for part in chunks] == [[[0, len(TEXTS[0])]], [[0, 0]], [[0, 4]]]


def test_chunks_are_means_of_the_states_of_the_whole_text(model: TextModel) -> None:
    (part,) = model.embed_chunks(TEXT, 4)
    (states,) = model.encode(TEXT)
    token_ids, offsets = model.tokenizer.encode_with_offsets(TEXT)
    chunk_of = np.array(
        [np.flatnonzero(part.offsets[:, 0] <= start)[-1] for start, _ in offsets], np.int64
    )
    # The special tokens belong to the first and the last chunk.
    chunk_of = np.array([0, *chunk_of, chunk_of[-1]])
    expected = [states[chunk_of == n].mean(0) for n in range(len(part.offsets))]
    np.testing.assert_allclose(part.vectors, expected, atol=1e-5)
    assert len(part.vectors) > 3
    assert np.bincount(chunk_of[1:-1]).max() <= 4
    assert len(chunk_of) == len(token_ids) + 2
    alone = model.embed([TEXT[start:stop] for start, stop in part.offsets])
    assert np.abs(part.vectors - alone).max() > 1e-3


def test_chunks_begin_at_words_and_cover_the_text(model: TextModel) -> None:
    for max_tokens in (1, 2, 3, 5):
        offsets = model.chunk_encoder(max_tokens).offsets(TEXT).tolist()
        assert offsets[0][0] == 0
        assert offsets[-1][1] == len(TEXT)
        assert all(not TEXT[a[1] : b[0]].strip() for a, b in pairwise(offsets))
    offsets = model.chunk_encoder(5).offsets(TEXT)
    assert all(start == 0 or TEXT[start - 1] == " " for start in offsets[:, 0])


def test_a_text_longer_than_the_model_is_read_in_windows() -> None:
    model = toy_text_model([*TEXTS, TEXT], "vectors.longest=12")
    word = next(w for w in ("the", "is", "red") if len(model.tokenizer.encode(w)) == 1)
    other = next(w for w in ("old", "bird", "new") if len(model.tokenizer.encode(w)) == 1)
    words = [word if n % 3 else other for n in range(40)]
    (part,) = model.embed_chunks(" ".join(words), 4)
    windows = word_windows(range(40), 40, 10, 5)
    rows: list[np.ndarray] = []
    for window in windows:
        (states,) = model.encode(" ".join(words[window.words.start : window.words.stop]))
        rows += [states[1 + n - window.words.start] for n in window.tagged]
    inner = np.array(rows[4:36]).reshape(8, 4, -1).mean(1)
    np.testing.assert_allclose(part.vectors[1:-1], inner, atol=1e-5)


def test_a_prompt_is_read_with_every_window_and_belongs_to_the_first_chunk() -> None:
    prompt, words = "the red ", ["old", "bird", "new", "tree"] * 5
    text = " ".join(words)
    model = toy_text_model([*TEXTS, prompt], "vectors.longest=16")
    (whole,) = model.embed_chunks(text[:17], 100, prompt=prompt)
    np.testing.assert_allclose(whole.vectors, model.embed(prompt + text[:17]), atol=1e-5)
    assert whole.offsets.tolist() == [[0, 17]]
    (plain,) = model.embed_chunks(text, 4)
    (prompted,) = model.embed_chunks(text, 4, prompt=prompt)
    assert prompted.offsets.tolist() == plain.offsets.tolist()
    differences = np.abs(prompted.vectors - plain.vectors).max(1)
    assert (differences > 1e-4).all()  # the last chunk is only in a later window


def test_batch_mates_and_length_one_change_no_direction(model: TextModel) -> None:
    texts = [TEXT, *TEXTS[:5]]
    together = model.embed_chunks(texts, 3, normalise=True)
    for text, part in zip(texts, together, strict=True):
        (alone,) = model.embed_chunks(text, 3)
        norms = np.linalg.norm(alone.vectors, axis=1, keepdims=True)
        np.testing.assert_allclose(part.vectors, alone.vectors / norms, atol=1e-5)


def test_a_start_token_has_no_chunks(model: TextModel) -> None:
    with pytest.raises(UserError, match="choose pooling mean"):
        model.embed_chunks(TEXT, 4, pooling="cls")


def test_embed_writes_chunks_with_their_characters(model: TextModel, tmp_path: Path) -> None:
    file, output = tmp_path / "texts.txt", tmp_path / "chunks.npz"
    file.write_text(f"{TEXT}\nbird\n", encoding="utf-8")
    model.save(tmp_path / "model")
    words = ["embed", str(tmp_path / "model"), str(file), "--chunk-tokens", "4"]
    words += ["--precision", "float32"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(r["text"] == (TEXT, "bird")[r["line"] - 1][r["start"] : r["stop"]] for r in records)
    assert CliRunner().invoke(app, [*words, "-o", str(output)]).exit_code == 0
    with np.load(output) as stored:
        assert (stored["texts"] + 1).tolist() == [record["line"] for record in records]
        assert stored["offsets"].tolist() == [[r["start"], r["stop"]] for r in records]
        np.testing.assert_allclose(stored["vectors"], [r["vector"] for r in records], atol=1e-5)


def test_truncated_texts_are_counted(tmp_path: Path) -> None:
    model, file = toy_text_model([*TEXTS, TEXT], "vectors.longest=8"), tmp_path / "texts.txt"
    model.save(tmp_path / "model")
    file.write_text(f"{TEXT}\nbird\n", encoding="utf-8")
    assert [model.num_truncated([text]) for text in (TEXT, "bird")] == [1, 0]
    result = CliRunner().invoke(app, ["embed", str(tmp_path / "model"), str(file)])
    assert "truncated 1 text to 8 tokens" in result.stderr
    whole = CliRunner().invoke(
        app, ["embed", str(tmp_path / "model"), str(file), "--chunk-tokens", "4"]
    )
    assert "truncated" not in whole.stderr
