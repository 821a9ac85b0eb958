"""Import of word vectors."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.interop.word_vectors import import_word_vectors, read_word_vectors
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.default_head import default_head

GLOVE = "the 0.5 -1 2\ncat 1 0 0\nsat 0 1 0\n. . 0 0 1\nwell-known 1 1 1\ncat 7 7 7\n"


def write(folder: Path, text: str, name: str = "vectors.txt") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("header", ["", "6 3\n"])
def test_files_with_and_without_a_header_are_read(tmp_path, header):
    source = read_word_vectors(write(tmp_path, header + GLOVE, "vectors.txt.gz"))
    assert source.words == ["the", "cat", "sat", ". .", "well-known"]
    assert source.vectors.tolist()[:2] == [[0.5, -1, 2], [1, 0, 0]]
    assert np.allclose(source.unknown, source.vectors.mean(axis=0))


def test_an_imported_model_embeds_words(tmp_path):
    model, num_omitted = import_word_vectors(write(tmp_path, GLOVE + "<unk> 9 9 9\n"))
    assert num_omitted == 2  # what the tokenizer splits
    assert model.model.recipe.name == "vectors"
    vector = model.embed(["The cat zzz"])[0]
    # The start and end tokens have vectors of 0.
    assert np.allclose(vector, [10.5 / 5, 8 / 5, 11 / 5], atol=1e-2)
    model.save(tmp_path / "model")
    again, _ = import_word_vectors(tmp_path / "vectors.txt")
    assert again.tokenizer.hash == model.tokenizer.hash


def test_words_are_lower_cased_only_if_all_are(tmp_path):
    model, _ = import_word_vectors(write(tmp_path, "cat 1 0\nCat 0 1\n"))
    assert not model.tokenizer.lowercase
    assert len(set(model.tokenizer.encode("cat Cat"))) == 2


def test_tasks_read_the_mean_of_word_vectors(tmp_path):
    model, _ = import_word_vectors(write(tmp_path, GLOVE))
    task = table_task("topics", Columns("text", label="label"))
    assert default_head(model.model.recipe, task.output_type).pooling == "mean"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word vectors"),
        ("cat 1 0\nsat 1\n", "line 2: expected a word and 2 finite numbers"),
        ("cat 1 0\nsat 1 nan\n", "line 2: expected a word and 2 finite numbers"),
        ("cat 1 0\nsat 1 x\n", "line 2: expected a word and 2 finite numbers"),
        ("3 2\ncat 1 0\n", "1 of 3 word vectors"),
        ("word\n", "line 1: expected a word and its numbers"),
        ("a-b 1\n", "no word without punctuation"),
    ],
)
def test_mistakes_name_the_line(tmp_path, text, message):
    with pytest.raises(UserError, match=message):
        import_word_vectors(write(tmp_path, text))
