"""Evaluation: documented keys, and refusal of unsuitable data."""

import math
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from small_tasks import TEXTS, classes

KEYS = {"masked_loss", "perplexity", "masked_accuracy", "bits_per_byte", "unigram_entropy"}


@pytest.fixture
def data(tmp_path: Path, wordpiece: Tokenizer):
    text = tmp_path / "text.txt"
    documents = [
        ". ".join([a, b, a]) + f". number {n}."
        for n, (a, b) in enumerate(zip(TEXTS * 4, TEXTS[5:] * 4, strict=False))
    ]
    text.write_text("\n\n".join(documents))
    wordpiece.save(tmp_path / "tokenizer")
    prepare([str(text)], tmp_path / "data", tmp_path / "tokenizer", heldout=0.3, num_workers=1)
    return tmp_path / "data"


def test_a_pretrained_model_is_evaluated_on_text(pretrained, data: Path) -> None:
    result = evaluate(pretrained("bert"), data)
    assert set(result) >= KEYS
    assert all(math.isfinite(value) for value in result.values())


def test_text_of_another_tokenizer_is_refused(pretrained, data: Path) -> None:
    with pytest.raises(UserError, match="was prepared with another tokenizer than the model's"):
        evaluate(pretrained("roberta"), data)
    with pytest.raises(UserError, match="evaluated on a folder written by prepare"):
        evaluate(pretrained("bert"), classes())


def test_a_fine_tuned_model_is_evaluated_on_a_file_or_a_folder(pretrained, tmp_path: Path) -> None:
    task = table_task("task", Columns())
    model = finetune(pretrained(), task, train=classes(), epochs=1).model
    file = tmp_path / "dev.tsv"
    file.write_text("text\tlabel\n" + "".join(f"{e.text}\t{e.label}\n" for e in classes()))
    assert evaluate(model, file) == evaluate(model, tmp_path) == evaluate(model, classes())
    with pytest.raises(UserError, match="examples without labels"):
        evaluate(model, [Example("a")])
    odd = Example("a", label="odd")
    assert evaluate(model, [*classes(), odd])["unknown_labels"] == ["odd"]
    with pytest.raises(UserError, match=r"have the labels odd, the model .*: nothing to"):
        evaluate(model, [odd])
