"""Re-ranking of lists: the equations of PRM, its lists, and what it learns."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bertwright.cli.app import app
from bertwright.core.errors import UserError
from bertwright.data.shards.dataset import Dataset
from bertwright.models import Model
from bertwright.modules.initialisation import PublishedInitialisationConfig, initialise
from bertwright.recipes import Recipe
from bertwright.training.evaluation.next_item import next_item_metrics, read_histories
from bertwright.training.pretraining.pretrain import pretrain
from bertwright.training.reranking.ranked_lists import RankedLists, build_lists, list_metrics
from bertwright.training.reranking.reranker import ListReranker, RerankerConfig
from bertwright.training.reranking.training import (
    RerankingSettings,
    _train,
    click_loss,
    rerank,
    scores_of,
)
from torch_layers import torch_layer

SMALL = (
    *("encoder.width=32", "encoder.mixer.head_width=16", "assembly.length=16"),
    *("batch_tokens=256", "precision=float32", "compile=false", "steps=2"),
)


@pytest.fixture(scope="module")
def model(items: Dataset) -> Model:
    model = Model.build(Recipe.load("bert4rec-tiny", *SMALL), items.tokenizer.vocab_size).eval()
    initialise(model, PublishedInitialisationConfig(std=0.5), seed=1)
    return model


def reranker(**settings: int) -> ListReranker:
    sizes = {"list_length": 5, "num_features": 6, "width": 8, "depth": 2, **settings}
    network = ListReranker(RerankerConfig.model_validate(sizes))
    initialise(network, PublishedInitialisationConfig(std=0.5), seed=0)
    return network.eval()


def clicks(*positions: int, length: int = 5) -> torch.Tensor:
    """Return the clicks of lists, one each; -1 for no click."""
    return torch.tensor([[float(n == p) for n in range(length)] for p in positions])


def test_scores_are_those_of_the_equations() -> None:
    """Features plus the embedding of the rank, projected, two transformer layers, projected."""
    net, features = reranker(), torch.randn(3, 5, 6)
    x = net.input(features + net.ranks)
    for block in net.blocks:
        x = torch_layer(block, 2)(x)
    torch.testing.assert_close(net(features), net.score(x)[..., 0], atol=1e-4, rtol=1e-4)


def test_only_the_embedding_of_the_rank_knows_the_initial_order() -> None:
    net, features, order = reranker(), torch.randn(2, 5, 6), torch.tensor([3, 0, 4, 1, 2])
    assert not torch.allclose(net(features[:, order]), net(features)[:, order], atol=1e-3)
    torch.nn.init.zeros_(net.ranks)
    torch.testing.assert_close(
        net(features[:, order]), net(features)[:, order], atol=1e-4, rtol=1e-4
    )


def test_loss_is_the_negative_log_probability_of_clicks() -> None:
    scores, targets = torch.randn(3, 5), clicks(2, -1, 0)
    targets[2, 4] = 1.0  # two clicks
    p = scores.softmax(1)
    loss = click_loss(scores, targets)
    assert float(loss.sum) == pytest.approx(-float((p[0, 2] * p[2, 0] * p[2, 4]).log()), rel=1e-5)
    assert loss.count == 3


def test_metrics_follow_their_definitions() -> None:
    metrics = list_metrics(clicks(0, 2, 6, -1, length=12))
    assert (metrics["hr_1"], metrics["hr_5"], metrics["hr_10"]) == (0.25, 0.5, 0.75)
    assert metrics["precision_5"] == pytest.approx(2 / 5 / 4)
    assert metrics["ndcg_5"] == pytest.approx((1 + 1 / math.log2(4)) / 4)
    assert metrics["mrr"] == pytest.approx((1 + 1 / 3 + 1 / 7) / 4)


@pytest.mark.parametrize("first", ["model", "popularity"])
def test_initial_lists_score_as_the_first_ranking(items: Dataset, model: Model, first) -> None:
    lists = build_lists(model, items, "test", 10, first)
    if first == "model":
        expected = next_item_metrics(model, model.recipe.objectives_of(0), items, "test")
        measured = list_metrics(lists.clicks)
        for name in ("hr_1", "hr_5", "hr_10", "ndcg_10"):
            assert measured[name] == pytest.approx(expected[name], abs=1e-6)
    else:
        counts = items.token_counts[lists.items.numpy()]
        assert (np.diff(counts.astype(int), axis=1) <= 0).all()
    histories = read_histories(items.split("test"), 10_000)
    for user, listed, click in zip(lists.users, lists.items, lists.clicks, strict=True):
        *earlier, target = histories[int(user)]
        assert not {*earlier} & {*listed.tolist()}
        assert click.tolist() == [float(item == target) for item in listed.tolist()]


def test_personalised_vectors_sum_to_the_logits(items: Dataset, model: Model) -> None:
    lists = build_lists(model.requires_grad_(False), items, "test", 10, "model")
    vectors, personal = lists.features.chunk(2, dim=-1)
    weights, biases = model.output.weights_and_biases(lists.items[0], model.embedding_table)
    assert torch.equal(vectors[0], weights)
    logits = personal.sum(-1) + model.output.bias[lists.items]
    assert torch.allclose(logits, logits.sort(dim=1, descending=True).values, atol=1e-5)
    assert torch.allclose(logits[0], personal[0].sum(-1) + biases, atol=1e-5)


def test_clicked_items_come_first_after_training() -> None:
    """The chosen item has the largest first feature, wherever it was."""
    features = torch.randn(64, 5, 6, generator=torch.Generator().manual_seed(0))
    targets = clicks(*features[..., 0].argmax(1).tolist())
    lists = RankedLists(torch.arange(64), torch.zeros(64, 5, dtype=torch.int64), features, targets)
    net = reranker()
    settings = RerankingSettings(epochs=40, batch_size=16, learning_rate=5e-3, dropout=0.0)
    _train(net, lists, lists, settings)
    assert list_metrics(lists.clicks)["hr_1"] < 0.4
    assert list_metrics(rerank(net, lists).clicks)["hr_1"] > 0.6


def test_loaded_reranker_scores_the_same(tmp_path: Path) -> None:
    net = reranker()
    lists = RankedLists(
        torch.arange(4),
        torch.zeros(4, 5, dtype=torch.int64),
        torch.randn(4, 5, 6),
        clicks(0, 1, 2, 3),
    )
    net.save(tmp_path)
    assert torch.equal(scores_of(ListReranker.load(tmp_path), lists), scores_of(net, lists))
    (tmp_path / "reranker.json").unlink()
    with pytest.raises(UserError, match=r"holds no re-ranker"):
        ListReranker.load(tmp_path)
    with pytest.raises(UserError, match="lists of 4 items with 6 features, not of 5"):
        rerank(reranker(list_length=4), lists)


def test_command_line_reranks_a_recommender(items: Dataset, tmp_path: Path) -> None:
    pretrain(Recipe.load("bert4rec-tiny", *SMALL), items, tmp_path / "first")
    command = ["rerank", str(tmp_path / "first"), "--data", str(items.path), "--list-length", "20"]
    command += ["--epochs", "1", "--json", "-o"]
    result = CliRunner().invoke(app, [*command, str(tmp_path / "second")])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert set(report["before"]) == set(report["after"]) >= {"hr_10", "ndcg_10", "precision_10"}
    lines = (tmp_path / "second" / "rankings.jsonl").read_text().splitlines()
    assert len(lines) == report["users"]
    assert len(set(json.loads(lines[0])["items"])) == 20
    refused = CliRunner().invoke(app, [*command, str(tmp_path / "third"), "--list-length", "5000"])
    assert "list_length 5000: user" in str(refused.exception)
    assert not (tmp_path / "third").exists()
