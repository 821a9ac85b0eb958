"""A model of fewer pieces answers what needs no others as the whole does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.application import app
from bertwright.compression.trimming import trim
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.tasks.answers import Answer
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import AnyExample
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.task import Task
from small_encoders import Pretrained
from small_tasks import classes, options, questions

NEEDED = ["the red bird is old", "a green tree"]
SYSTEMS = ["bert", "roberta", "electra", "elmo", "mobilebert", "bart"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_states_and_logits_are_those_of_the_whole(system: str, pretrained: Pretrained) -> None:
    whole = pretrained(system)
    small = trim(whole, NEEDED)
    assert small.tokenizer.size < whole.tokenizer.size
    assert small.model.recipe.text.tokenizer.size == small.tokenizer.size
    for one, other in zip(small.encode(NEEDED), whole.encode(NEEDED), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    if whole.model.output is not None:
        states = torch.randn(3, whole.model.recipe.encoder.width).to(whole.device)
        pieces = [small.tokenizer.piece(new) for new in range(small.tokenizer.size)]
        former = torch.tensor([whole.tokenizer.id(piece) for piece in pieces])
        with torch.no_grad():
            found, expected = small.model.logits(states), whole.model.logits(states)[:, former]
        torch.testing.assert_close(found, expected)


def test_a_model_that_numbers_by_frequency_stays_whole(pretrained: Pretrained) -> None:
    cutoffs = "{kind: adaptive, cutoffs: [20, 60]}"
    whole = pretrained("bert", f"encoder.embeddings={cutoffs}", "output.kind=untied")
    with pytest.raises(UserError, match="cannot be trimmed"):
        trim(whole, NEEDED)


def test_texts_without_a_piece_are_refused(pretrained: Pretrained) -> None:
    with pytest.raises(UserError, match="no piece"):
        trim(pretrained(), [" "])


def test_a_fine_tuned_model_is_trimmed_from_a_shell(pretrained: Pretrained, tmp_path: Path) -> None:
    task, examples = table_task("age", Columns()), classes()[:8]
    finetune(
        pretrained(),
        task,
        train=examples,
        dev=examples,
        out=tmp_path / "whole",
        epochs=1,
        compile=False,
    )
    rows = "".join(f"{e.first}\t{e.label}\n" for e in examples)
    for part in ("train", "dev"):
        (tmp_path / f"{part}.tsv").write_text(f"text\tlabel\n{rows}")
    stated = ["trim", str(tmp_path / "whole"), "--data", str(tmp_path), "-o"]
    result = CliRunner().invoke(app, [*stated, str(tmp_path / "small"), "--json"])
    assert result.exit_code == 0, result.output
    whole, small = (load(tmp_path / name, "float32") for name in ("whole", "small"))
    texts = [str(each.first) for each in examples]
    assert small.tokenizer.size < whole.tokenizer.size
    for one, other in zip(small.predict(texts), whole.predict(texts), strict=True):
        assert one.answer == other.answer
        assert one.probabilities == pytest.approx(other.probabilities, abs=1e-6)


@pytest.mark.parametrize(
    ("system", "answer", "examples"),
    [
        ("bert", {"kind": "cloze", "words": {"old": "old", "new": "new"}}, classes()[:8]),
        ("roberta", "option", options()[:8]),
        ("roberta", "span", questions()[:8]),
    ],
    ids=["cloze", "option", "span"],
)
def test_examples_are_read_as_the_whole_reads_them(
    system: str, answer: Any, examples: list[AnyExample], pretrained: Pretrained
) -> None:
    task, given = Task("asked", Answer.choose(answer)), {"train": examples, "dev": examples}
    whole = finetune(pretrained(system), task, epochs=0, **given).model
    small = trim(whole, examples=examples)
    assert isinstance(small, FineTuned)
    assert small.tokenizer.size < whole.tokenizer.size
    cut = [
        [[m.tokenizer.piece(p) for p in r.pieces] for r in m.answering.rows(m.maker, examples)]
        for m in (small, whole)
    ]
    assert cut[0] == cut[1]
    assert small.predict(examples) == whole.predict(examples)


def test_a_template_stays_whatever_texts_are_counted(pretrained: Pretrained) -> None:
    answer = Answer.choose({"kind": "cloze", "words": {"old": "old", "new": "new"}})
    given = {"train": classes()[:8], "dev": classes()[:8]}
    whole = finetune(pretrained("bert"), Task("asked", answer), epochs=0, **given).model
    texts = [e.first for e in classes()[:8]]
    small = trim(whole, texts=texts)
    assert small.predict(texts) == whole.predict(texts)


def test_the_tokenizer_of_the_whole_is_no_tokenizer_of_the_trimmed(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    whole, task = pretrained(), table_task("age", Columns())
    settings = {"epochs": 1, "compile": False}
    tuned = finetune(whole, task, train=classes()[:8], dev=classes()[:8], **settings).model
    for model in (whole, tuned):
        folder = tmp_path / type(model).__name__
        trim(model, NEEDED).save(folder)
        load(folder)
        whole.tokenizer.save(folder)
        with pytest.raises(UserError, match=r"the tokenizer has \d+ pieces and the model \d+"):
            load(folder)
