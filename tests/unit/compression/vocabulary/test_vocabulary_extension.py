"""Vocabulary extension: old rows stay, new rows come from those of the former tokens."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.compression.vocabulary.extension import ExtendedModel, extend_vocabulary
from bertwright.compression.vocabulary.resizing import parameters_per_token
from bertwright.core.errors import UserError
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.character_ids import token_character_ids
from bertwright.interop.loading import load
from bertwright.models.model import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.embeddings.spelling import SpelledEmbedding
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from small_encoders import Pretrained
from small_tasks import ENGLISH, classes
from toy_recipes import toy

SAME = ["the red bird is old", "a green tree"]
NEWS = ["the reddest birdhouse greened, greenest birdhouses are redder than old birdhouses"] * 3
SYSTEMS = {
    "bert": 2,  # the token table and the bias of the output
    "roberta": 2,
    "albert": 2,
    "electra": 2,  # the generator shares the table
    "mobilebert": 3,
    "bart": 1,
    "skip-thought": 3,
    "word2vec": 2,
}


def extend(model: TextModel, num_tokens: int = 6, init: str = "mean") -> ExtendedModel:
    return extend_vocabulary(model, NEWS, num_tokens, init)


def tables(model: Model) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_table_is_extended_by_means(system: str, pretrained: Pretrained) -> None:
    original = pretrained(system)
    per_token = parameters_per_token(original)
    assert len(per_token) == SYSTEMS[system]
    extended = extend(original)
    size, parts = original.model.vocab_size, extended.extension.parts
    assert extended.model.model.vocab_size == size + len(parts) == size + 6
    assert extended.model.tokenizer.vocab_size == size + 6
    fresh = Model.build(extended.model.model.recipe, size + 6, extended.model.tokenizer)
    before, after = tables(original.model), tables(extended.model.model)
    assert {n: t.shape for n, t in after.items()} == {n: t.shape for n, t in tables(fresh).items()}
    for name, table in before.items():
        if name not in per_token:
            assert torch.equal(after[name], table), name
            continue
        assert torch.equal(after[name][:size], table), name
        means = torch.stack([table[list(ids)].mean(0) for ids in parts])
        torch.testing.assert_close(after[name][size:], means, msg=name)


def test_values_that_blocks_read_are_extended(pretrained: Pretrained) -> None:
    model = pretrained("bert", "encoder.value_embeddings.tables=1")
    names = parameters_per_token(model)
    assert sum("value_embeddings" in name for name in names) == 1
    assert len(extend(model).model.embed(NEWS)) == len(NEWS)


@pytest.mark.parametrize("system", ["bert", "roberta"])
def test_outputs_for_other_texts_stay(system: str, pretrained: Pretrained) -> None:
    original = pretrained(system)
    extended = extend(original).model
    encoders = [m.tokenizer.encode for m in (extended, original)]
    texts = [word for word in ENGLISH.split() if encoders[0](word) == encoders[1](word)]
    assert len(texts) > 3
    for states, expected in zip(extended.encode(texts), original.encode(texts), strict=True):
        np.testing.assert_allclose(states, expected, atol=1e-6)
    states = torch.randn(3, original.model.recipe.encoder.width).to(original.device)
    with torch.no_grad():
        logits, expected = extended.model.logits(states), original.model.logits(states)
    torch.testing.assert_close(logits[:, : expected.shape[1]], expected)


def test_longer_parts_weigh_more(pretrained: Pretrained) -> None:
    original = pretrained()
    extended = extend(original, init="length")
    table, size = original.model.embedding_table, original.model.vocab_size
    rows = extended.model.model.embedding_table[size:]
    for row, parts in zip(rows, extended.extension.parts, strict=True):
        tokens = [original.tokenizer.id_to_token(n).removeprefix("##") for n in parts]
        weights = torch.tensor([float(len(token)) for token in tokens])
        torch.testing.assert_close(row, weights @ table[list(parts)] / weights.sum())


def test_average_rows_have_little_noise_of_the_same_shape(pretrained: Pretrained) -> None:
    original = pretrained()
    new = extend(original, 12, "average").model.model.embedding_table[original.model.vocab_size :]
    new, table = new.detach(), original.model.embedding_table.detach()
    distance = new - table.mean(0)
    assert len(new.unique(dim=0)) == len(new)
    variance = distance.square().mean() / (table - table.mean(0)).square().mean()
    assert float(variance) == pytest.approx(1e-5, rel=0.3)  # Hewitt 2021


def test_random_rows_are_those_of_an_untrained_model(pretrained: Pretrained) -> None:
    original = pretrained()
    new = extend(original, init="random").model.model
    fresh = Model.build(original.model.recipe, new.vocab_size)
    size = original.model.vocab_size
    assert torch.equal(new.embedding_table[size:], fresh.embedding_table[size:])


def test_rows_without_a_token_are_used_first(pretrained: Pretrained) -> None:
    """Published tables may have more rows than tokens."""
    small = pretrained()
    first = small.tokenizer.vocab_size
    last = first + 6
    original = TextModel(Model.build(toy("bert"), first + 10), small.tokenizer, "float32")
    extended = extend(original, 6).model
    rows, old_rows = (m.model.embedding_table for m in (extended, original))
    assert len(rows) == first + 10
    assert torch.equal(rows[:first], old_rows[:first])
    assert torch.equal(rows[last:], old_rows[last:])
    assert (rows[first:last] != old_rows[first:last]).any(1).all()
    assert extended.model.logits(torch.zeros(1, rows.shape[1]))[0, last:].isneginf().all()


def test_new_tokens_are_spelled(pretrained: Pretrained) -> None:
    changes = "encoder.embeddings={kind: characters}", "output.kind=untied"
    extended = extend(pretrained("bert", *changes)).model
    embedding = extended.model.encoder.embeddings.tokens
    assert isinstance(embedding, SpelledEmbedding)
    spelling = token_character_ids(
        extended.tokenizer, extended.tokenizer.vocab_size, embedding.longest
    )
    np.testing.assert_array_equal(embedding.get_buffer("spelling").numpy(), spelling)


def test_a_fine_tuned_model_keeps_its_task(pretrained: Pretrained) -> None:
    task = Task("task", OutputType.parse("class"))
    data = {"train": classes()[:8], "dev": classes()[:8]}
    original = finetune(pretrained(), task, epochs=0, **data).model
    extended = extend(original).model
    assert isinstance(extended, FineTunedModel)
    assert extended.predict(SAME) == original.predict(SAME)


def test_what_cannot_be_extended_is_refused(pretrained: Pretrained) -> None:
    cutoffs = "{kind: adaptive, cutoffs: [20, 60]}"
    model = pretrained("bert", f"encoder.embeddings={cutoffs}", "output.kind=untied")
    with pytest.raises(UserError, match="must keep its vocabulary"):
        extend(model)
    with pytest.raises(UserError, match=r"no initialiser 'maen'.*'mean'"):
        extend(pretrained(), init="maen")


def run(*words: object) -> dict[str, object]:
    result = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_training_goes_on_with_the_extended_model(
    pretrained: Pretrained, tmp_path: Path, short_runs: None
) -> None:
    pretrained("bert", "steps=1").save(tmp_path / "old")
    text = tmp_path / "news.txt"
    text.write_text("\n\n".join(f"{n} {NEWS[0]}." for n in range(40)))
    model, settings = tmp_path / "new", ("--text", text, "--add", 6)
    result = run("vocab", "extend", tmp_path / "old", *settings, "-o", model)
    assert result["added"] == len(result["new_tokens"]) == 6
    assert result["tokens"] < result["tokens_before"]
    shown = [run("vocab", "show", tmp_path / name, "--text", text) for name in ("old", "new")]
    assert [r["tokens"] for r in shown] == [result["tokens_before"], result["tokens"]]
    assert shown[1]["size"] == shown[0]["size"] + 6
    assert shown[1]["tokens_per_word"] == pytest.approx(result["tokens_per_word"])
    assert shown[0]["fragmented_words"][0]["word"] == "birdhouses"
    prepare(text, tmp_path / "data", model, num_workers=1)
    run("pretrain", "--from", model, "--data", tmp_path / "data", "-o", tmp_path / "trained")
    trained = load(tmp_path / "trained", "float32")
    assert trained.tokenizer.hash == load(model).tokenizer.hash
    assert not torch.equal(
        trained.model.embedding_table, load(model, "float32").model.embedding_table
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--add", "0"), "must be 1 or more, not 0"),
        (("--add", "-3"), "must be 1 or more, not -3"),
        (("--add", "9", "--init", "maen"), "no initialiser 'maen'"),
    ],
)
def test_a_wrong_option_is_named(
    words: tuple[str, ...], message: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    pretrained().save(tmp_path / "old")
    (tmp_path / "news.txt").write_text(NEWS[0])
    command = ["vocab", "extend", str(tmp_path / "old"), "--text", str(tmp_path / "news.txt")]
    result = CliRunner().invoke(app, [*command, *words, "-o", str(tmp_path / "new")])
    assert isinstance(result.exception, UserError)
    assert message in str(result.exception)
    assert not (tmp_path / "new").exists()
