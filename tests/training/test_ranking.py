"""The ranks of held-out items, by their definition."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.studies.corpora import Items, Written
from bertwright.text.shards import Data
from bertwright.text.tokenizers import ItemsChoice
from bertwright.training.evaluation import evaluate, held_out, next_items
from bertwright.training.pretraining import pretrain
from bertwright.training.ranking import _drawn, _figures, _rank, ranking

SMALL = (
    "encoder.width=32",
    "encoder.mixer.head_width=16",
    "assembly.length=16",
    "batch_tokens=256",
    "precision=float32",
    "compile=false",
    "steps=8",
)
CAUSAL = (
    "text.tokenizer.kind=items",
    "assembly={kind: item-history, length: 16, windows: 1, last: 0}",
    "phases=[{}]",
)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("items")
    written = Written(folder / "corpus")
    corpus = Items(users=60)
    corpus.write(written)
    corpus.prepare(written, ItemsChoice(), folder / "vocabulary", folder / "data")
    return Data.open(folder / "data")


def test_an_item_that_is_not_known_is_named(items: Data) -> None:
    model = Model.build(Recipe.load("bert4rec", *SMALL), items.tokenizer.size)
    asked, known = TextModel(model, items.tokenizer, "float32"), items.tokenizer.piece(10)
    assert len(asked.fill_mask(f"{known} [MASK]")[0]) == 5
    assert asked.embed(f"{known} {known}").shape == (1, 32)
    with pytest.raises(UserError, match=r"knows no item 'film': .* with _ for each space"):
        asked.fill_mask("film 3 [MASK]")
    with pytest.raises(UserError, match="knows no item"):
        asked.embed([known, "good morning"])


def test_figures_are_what_the_field_defines() -> None:
    found = _figures(np.array([1.0, 3.0, 7.5, 20.0]))
    assert found["hr_1"] == 0.25
    assert found["hr_5"] == 0.5
    assert found["hr_10"] == 0.75
    assert found["ndcg_5"] == pytest.approx((1 + 1 / math.log2(4)) / 4, abs=1e-9)
    assert found["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 7.5 + 1 / 20) / 4, abs=1e-9)


def test_among_equals_an_item_has_the_mean_rank() -> None:
    scores = torch.tensor([5.0, 2.0, 2.0, 2.0, 1.0])
    assert _rank(scores, 1, torch.tensor([0, 2, 3, 4])) == 3.0


def test_negatives_are_drawn_by_popularity_the_same_ones_for_every_model() -> None:
    popularity = torch.cat((torch.full((150,), 1.0), torch.full((150,), 50.0)))
    candidates = torch.arange(300)
    drawn = [_drawn(candidates, popularity, user) for user in range(20)]
    assert all(len(set(negatives.tolist())) == 100 for negatives in drawn)
    assert torch.equal(drawn[3], _drawn(candidates, popularity, 3))
    assert not torch.equal(drawn[3], drawn[4])
    assert float(torch.cat(drawn).ge(150).float().mean()) > 0.9


def test_a_model_that_knows_only_how_frequent_items_are_ranks_as_popularity(items: Data) -> None:
    recipe = Recipe.load("bert4rec-tiny", *SMALL)
    model = Model.build(recipe, items.tokenizer.size).eval()
    assert model.output is not None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.output.bias.copy_(torch.from_numpy(items.piece_counts).float())  # type: ignore[union-attr]
    found = ranking(model, recipe.objectives, items)
    for name, value in found.items():
        if name.startswith("popularity_"):
            assert found[name.removeprefix("popularity_")] == value
    assert 0 < found["popularity_hr_10"] <= found["popularity_sampled_hr_10"]


@pytest.mark.parametrize("system", ["bert4rec", "gpt"])
def test_what_is_behind_the_last_item_decides_nothing(items: Data, system: str) -> None:
    """The item that is asked for is not among what the model reads."""
    recipe = Recipe.load(f"{system}-tiny", *SMALL, *(CAUSAL if system == "gpt" else ()))
    model = Model.build(recipe, items.tokenizer.size).eval()
    seen: list[torch.Tensor] = []
    inner = model.encoder.forward
    model.encoder.forward = lambda *args, **named: (seen.append(args[0]), inner(*args, **named))[1]  # type: ignore[method-assign]
    ranking(model, recipe.objectives, items, "test")
    split, read = items.split("test"), torch.cat([batch.flatten() for batch in seen])
    mask, pad = items.tokenizer.specials.mask, items.tokenizer.specials.pad
    lengths = np.minimum(np.diff(split.document_starts) - (system == "gpt"), 16)
    assert int((read != pad).sum()) == lengths.sum()
    assert int((read == mask).sum()) == (len(lengths) if system == "bert4rec" else 0)


def test_training_and_evaluation_report_ranks(items: Data, tmp_path: Path) -> None:
    recipe = Recipe.load("bert4rec-tiny", *SMALL, "evaluate_every=4")
    done = pretrain(recipe, items, tmp_path / "out", quiet=True)
    assert {"masked_loss", "hr_10", "ndcg_10", "mrr", "popularity_hr_10"} <= done.figures.keys()
    assert "bits_per_byte" not in done.figures
    model = Model.build(recipe, items.tokenizer.size).eval()
    assert {"hr_10", "test_hr_10", "test_popularity_sampled_mrr"} <= evaluate(model, items).keys()


def test_the_held_out_loss_is_that_of_the_last_item(items: Data) -> None:
    recipe = Recipe.load("bert4rec-tiny", *SMALL)
    asked = held_out(recipe, 0, items, 10**6)
    questions = [batch.questions["masked"] for batch in asked.batches]
    weight = np.concatenate([q.weight for q in questions])
    target = np.concatenate([q.target for q in questions])[weight > 0]
    split = items.split("heldout")
    last = split.pieces(0, split.num_pieces)[split.document_starts[1:] - 1]
    assert sorted(target.tolist()) == sorted(last.tolist())
    shown = np.concatenate(
        [
            b.pieces.ravel()[q.where[q.weight > 0]]
            for b, q in zip(asked.batches, questions, strict=True)
        ]
    )
    assert (shown == items.tokenizer.specials.mask).all()


def test_text_has_no_next_item(items: Data) -> None:
    recipe = Recipe.load("bert-tiny")
    assert next_items(Model.build(recipe, 50), recipe, 0, items) == {}
