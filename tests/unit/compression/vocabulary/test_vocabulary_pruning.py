"""Vocabulary pruning: a pruned model predicts what the original does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.compression.vocabulary.pruning import prune_vocabulary
from bertwright.core.errors import UserError
from bertwright.interop.loading import load
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import TaskExample
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from small_encoders import Pretrained
from small_tasks import classes, options, questions

NEEDED = ["the red bird is old", "a green tree"]
SYSTEMS = ["bert", "roberta", "electra", "elmo", "mobilebert", "bart"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_states_and_logits_are_those_of_the_original(system: str, pretrained: Pretrained) -> None:
    original = pretrained(system)
    pruned = prune_vocabulary(original, NEEDED)
    assert pruned.tokenizer.vocab_size < original.tokenizer.vocab_size
    assert pruned.model.recipe.text.tokenizer.vocab_size == pruned.tokenizer.vocab_size
    for states, expected in zip(pruned.encode(NEEDED), original.encode(NEEDED), strict=True):
        np.testing.assert_allclose(states, expected, atol=1e-6)
    if original.model.output is not None:
        states = torch.randn(3, original.model.recipe.encoder.width).to(original.device)
        tokens = [pruned.tokenizer.id_to_token(n) for n in range(pruned.tokenizer.vocab_size)]
        kept_ids = torch.tensor([original.tokenizer.token_to_id(token) for token in tokens])
        with torch.no_grad():
            logits = pruned.model.logits(states)
            expected = original.model.logits(states)[:, kept_ids]
        torch.testing.assert_close(logits, expected)


def test_a_model_ordered_by_frequency_is_not_pruned(pretrained: Pretrained) -> None:
    cutoffs = "{kind: adaptive, cutoffs: [20, 60]}"
    model = pretrained("bert", f"encoder.embeddings={cutoffs}", "output.kind=untied")
    with pytest.raises(UserError, match="must keep its vocabulary"):
        prune_vocabulary(model, NEEDED)


def test_texts_without_tokens_are_refused(pretrained: Pretrained) -> None:
    with pytest.raises(UserError, match="contain no tokens"):
        prune_vocabulary(pretrained(), [" "])


def test_the_command_prunes_a_fine_tuned_model(pretrained: Pretrained, tmp_path: Path) -> None:
    task, examples = table_task("age", Columns()), classes()[:8]
    finetune(
        pretrained(),
        task,
        train=examples,
        dev=examples,
        output=tmp_path / "whole",
        epochs=1,
        compile=False,
    )
    lines = "".join(f"{e.text}\t{e.label}\n" for e in examples)
    for part in ("train", "dev"):
        (tmp_path / f"{part}.tsv").write_text(f"text\tlabel\n{lines}")
    arguments = ["vocab", "prune", str(tmp_path / "whole"), "--data", str(tmp_path), "-o"]
    result = CliRunner().invoke(app, [*arguments, str(tmp_path / "pruned"), "--json"])
    assert result.exit_code == 0, result.output
    original, pruned = (load(tmp_path / name, "float32") for name in ("whole", "pruned"))
    texts = [example.text for example in examples]
    assert pruned.tokenizer.vocab_size < original.tokenizer.vocab_size
    predictions = zip(pruned.predict(texts), original.predict(texts), strict=True)
    for prediction, expected in predictions:
        assert prediction.value == expected.value
        assert prediction.probabilities == pytest.approx(expected.probabilities, abs=1e-6)


@pytest.mark.parametrize(
    ("system", "output_type", "examples"),
    [
        ("bert", {"kind": "cloze", "words": {"old": "old", "new": "new"}}, classes()[:8]),
        ("roberta", "option", options()[:8]),
        ("roberta", "span", questions()[:8]),
    ],
    ids=["cloze", "option", "span"],
)
def test_examples_are_tokenized_as_by_the_original(
    system: str, output_type: Any, examples: list[TaskExample], pretrained: Pretrained
) -> None:
    task = Task("task", OutputType.parse(output_type))
    data = {"train": examples, "dev": examples}
    original = finetune(pretrained(system), task, epochs=0, **data).model
    pruned = prune_vocabulary(original, examples=examples)
    assert isinstance(pruned, FineTunedModel)
    assert pruned.tokenizer.vocab_size < original.tokenizer.vocab_size
    tokens = [
        [
            [m.tokenizer.id_to_token(t) for t in sequence.token_ids]
            for sequence in m.output_decoder.encode(m.example_encoder, examples)
        ]
        for m in (pruned, original)
    ]
    assert tokens[0] == tokens[1]
    assert pruned.predict(examples) == original.predict(examples)


WORDS = {"old": "tree", "new": "river"}


@pytest.mark.parametrize(
    ("system", "kind"), [("bert", "cloze"), ("t5", "class-in-words")], ids=["bert", "t5"]
)
def test_templates_and_the_words_of_classes_are_kept(
    system: str, kind: str, pretrained: Pretrained
) -> None:
    task = Task("task", OutputType.parse({"kind": kind, "words": WORDS}))
    data = {"train": classes()[:8], "dev": classes()[:8]}
    original = finetune(pretrained(system), task, epochs=0, **data).model
    texts = [e.text for e in classes() if not {*WORDS.values()} & {*e.text.split()}]
    assert texts
    pruned = prune_vocabulary(original, texts=texts)
    if kind == "cloze":
        assert pruned.predict(texts) == original.predict(texts)
        return
    for word in WORDS.values():
        tokens = [
            [m.tokenizer.id_to_token(token_id) for token_id in m.tokenizer.encode(word)]
            for m in (pruned, original)
        ]
        assert tokens[0] == tokens[1]


def test_a_pruned_model_needs_its_tokenizer(pretrained: Pretrained, tmp_path: Path) -> None:
    original, task = pretrained(), table_task("age", Columns())
    settings = {"epochs": 1, "compile": False}
    tuned = finetune(original, task, train=classes()[:8], dev=classes()[:8], **settings).model
    for model in (original, tuned):
        folder = tmp_path / type(model).__name__
        prune_vocabulary(model, NEEDED).save(folder)
        load(folder)
        original.tokenizer.save(folder)
        with pytest.raises(UserError, match=r"the tokenizer has \d+ tokens and the model \d+"):
            load(folder)
