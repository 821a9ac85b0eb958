"""Adaptations: each learns, trains its parameters only, and round-trips through a folder."""

from pathlib import Path
from typing import Any

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.recipes import Recipe
from bertwright.tasks.adapters import AdaptationConfig, LoraConfig
from bertwright.tasks.adapters.lora import LoraParametrisation, matrix_names
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.fine_tuned_model import load_fine_tuned_model
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.head import TaskHeadContext, init_head
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.tasks.task import Task
from full_suite import full_except
from small_tasks import classes, pairs, partners, similar, tagged, until
from toy_recipes import SYSTEMS, TYPICAL_SYSTEMS

CLASSES, TAGS = table_task("colours", Columns()), tagging_task("colours")

ADAPTATIONS: list[Any] = [
    "full",
    {"kind": "full", "layer_decay": 0.8, "reinitialised_blocks": 1},
    "gradual",
    {"kind": "last", "blocks": 1},
    "frozen",
    {"kind": "adapters", "width": 4},
    {"kind": "lora", "rank": 2},
    {"kind": "lora", "rank": 2, "sublayers": ["attention", "feed_forward"]},
    {"kind": "knowledge-adapters", "width": 8},
]
every_adaptation = pytest.mark.parametrize("adaptation", ADAPTATIONS, ids=str)

SETTINGS = {
    "dropout": 0.0,
    "weight_decay": 0.0,
    "compile": False,
    "batch_size": 8,
    "precision": "float32",
}


def adapted(
    model, adaptation: Any, task=CLASSES, examples=None, **settings: Any
) -> FineTuningResult:
    merged = {**SETTINGS, "epochs": 2, "adaptation": adaptation, **settings}
    examples = classes() if examples is None else examples
    return finetune(model, task, train=examples, dev=examples, **merged)


def changed_parts(model, result: FineTuningResult) -> set[str]:
    """Return the changed parts of the encoder: blocks by number, others by name."""
    before = dict(model.model.encoder.named_parameters())
    after = dict(result.model.task_model.encoder.named_parameters())
    moved = [n for n in before if not torch.equal(after[n].cpu(), before[n].cpu())]
    return {n.split(".")[1] if n.startswith("blocks") else n.split(".")[0] for n in moved}


@every_adaptation
@pytest.mark.parametrize("system", ["bert", "modern"])
def test_every_adaptation_learns(pretrained, adaptation: Any, system: str) -> None:
    rate = 2e-2 if adaptation != "full" and "reinit" not in str(adaptation) else 3e-3
    result = adapted(
        pretrained(system), adaptation, epochs=40, learning_rate=rate, make_reporter=until(0.95)
    )
    assert result.scores[0] > 0.9


@every_adaptation
def test_loaded_model_predicts_the_same(pretrained, adaptation: Any, tmp_path: Path) -> None:
    result = adapted(pretrained("bert"), adaptation, learning_rate=1e-2, output=tmp_path / "task")
    again = load_fine_tuned_model(tmp_path / "task")
    assert again.predict(classes()) == result.model.predict(classes())


@pytest.mark.parametrize(
    ("adaptation", "parts"),
    [
        ("frozen", ""),
        ({"kind": "last", "blocks": 1}, "1 norm"),
        ({"kind": "lora", "rank": 2}, "0 1"),
        ({"kind": "adapters", "width": 4}, "0 1 embeddings"),
    ],
    ids=str,
)
def test_frozen_parameters_are_unchanged(pretrained, adaptation: Any, parts: str) -> None:
    model = pretrained("bert")
    result = adapted(model, adaptation, learning_rate=1e-2)
    changed = changed_parts(model, result)
    assert changed <= set(parts.split())
    assert bool(changed) == bool(parts)
    assert result.as_dict()["trained_fraction"] < 0.9


@pytest.mark.parametrize("system", ["bert", "modern"])
def test_head_after_reinitialised_blocks_is_new(pretrained, system: str) -> None:
    source = pretrained(system)
    for model in (source, adapted(source, "full", epochs=0).model):
        kept, drawn = (
            adapted(
                model, {"kind": "full", "reinitialised_blocks": number}, epochs=0
            ).model.task_model.head
            for number in (0, 1)
        )
        fresh = kept.config.build(TaskHeadContext(source.model.recipe, 2))
        init_head(fresh, None, seed=0)
        assert torch.equal(drawn.trunk.dense.weight, fresh.trunk.dense.weight)
        assert not torch.equal(drawn.trunk.dense.weight, kept.trunk.dense.weight)


@pytest.mark.parametrize("system", ["bert", "modern"])
def test_adapters_train_adapters_and_norms_only(pretrained, system: str) -> None:
    model = pretrained(system)
    result = adapted(model, {"kind": "adapters", "width": 4}, learning_rate=1e-2)
    before = dict(model.model.encoder.named_parameters())
    after = dict(result.model.task_model.encoder.named_parameters())
    moved = {n for n in after if n not in before or not torch.equal(after[n], before[n])}
    assert moved == {n for n in after if ".adapters." in n or "norm" in n}


@every_adaptation
def test_model_with_adapters_is_not_fine_tuned_again(pretrained, adaptation: Any) -> None:
    result = adapted(pretrained("bert"), {"kind": "adapters", "width": 4}, epochs=0)
    with pytest.raises(UserError, match=r"adapters.* would lose"):
        adapted(result.model, adaptation)


@pytest.mark.parametrize("kind", ["adapters", "knowledge-adapters"])
def test_model_with_adapters_has_no_stock_class(pretrained, kind: str, tmp_path: Path) -> None:
    model = adapted(pretrained("bert"), {"kind": kind, "width": 4}, epochs=0).model
    with pytest.raises(UserError, match=r"adapters.*: export it to onnx"):
        export_huggingface(model, model.tokenizer, tmp_path / "stock")
    assert not (tmp_path / "stock").exists()


@pytest.mark.parametrize("system", full_except(SYSTEMS, TYPICAL_SYSTEMS))
@pytest.mark.parametrize(
    "adaptation",
    [
        {"kind": "adapters", "width": 4},
        pytest.param({"kind": "lora", "rank": 2}, marks=pytest.mark.full),
    ],
)
def test_added_modules_start_near_identity_and_learn_in_every_encoder(
    pretrained, system: str, adaptation: Any
) -> None:
    model = pretrained(system)
    if not matrix_names(model.model.encoder, LoraConfig().sublayers):
        with pytest.raises(UserError, match=r"has no (matrices|blocks)"):
            adapted(model, {"kind": "lora"}, epochs=0)
        return
    head = {"head": {"kind": "plain", "pooling": "mean"}}
    untrained = adapted(model, adaptation, epochs=0, **head)
    texts = [example.text for example in classes()]
    near = abs(model.embed(texts) - untrained.model.embed(texts)).max()
    assert near < 0.2
    trained = adapted(model, adaptation, epochs=2, learning_rate=1e-2, **head)
    losses = [epoch.loss for epoch in trained.run.epoch_reports]
    assert losses[-1] < losses[0] or trained.scores[0] == 1.0
    assert abs(trained.model.embed(texts) - untrained.model.embed(texts)).max() > near / 10


def test_lora_updates_have_low_rank_in_each_part(pretrained) -> None:
    encoder = pretrained("bert").model.encoder
    changes = LoraParametrisation(encoder, 2, 4.0, ("attention",)).to(
        next(encoder.parameters()).device
    )
    changes.init_parameters(1, {})
    for up in changes.up:
        torch.nn.init.normal_(up)
    known = dict(encoder.named_parameters())
    for name, weight in changes(known).items():
        difference = (weight - known[name]).detach()
        for part in difference.chunk(3 if len(weight) == 3 * weight.shape[1] else 1):
            assert torch.linalg.matrix_rank(part, rtol=1e-4) == 2


@pytest.mark.parametrize("system", ["bert", "albert"])
def test_frozen_pairs_are_encoded_apart_by_shared_blocks_too(pretrained, system: str) -> None:
    # The default head is siamese, so features are computed with another attention mask.
    task = table_task("pairs", Columns(pair="pair"))
    result = adapted(pretrained(system), "frozen", task, pairs(), calibrate=False)
    assert result.model.task_model.head_config.pooling == "siamese"
    predictions = result.model.predict(pairs())
    for prediction, kept in zip(predictions, result.best.predictions[0], strict=True):
        assert prediction.probabilities == pytest.approx(kept.probabilities, abs=2e-2)


def test_frozen_features_give_the_predictions_of_the_model(pretrained) -> None:
    for task, examples in ((CLASSES, classes()), (TAGS, tagged())):
        result = adapted(pretrained("bert"), "frozen", task, examples, calibrate=False)
        predictions = result.model.predict(examples)
        for prediction, kept in zip(predictions, result.best.predictions[0], strict=True):
            # Batches differ, and with them how bfloat16 rounds.
            assert prediction.probabilities == pytest.approx(kept.probabilities, abs=2e-2)


@pytest.mark.parametrize("mix", ["concat", "sum", "mean", "learned"])
@pytest.mark.parametrize("adaptation", ["frozen", "full"])
def test_a_head_reads_several_layers(pretrained, mix: str, adaptation: str, tmp_path: Path) -> None:
    head = {"kind": "plain", "pooling": "positions", "layers": "last-2", "mix": mix}
    out = tmp_path / "task"
    result = adapted(
        pretrained("bert"),
        adaptation,
        TAGS,
        tagged(),
        head=head,
        learning_rate=1e-2,
        epochs=8,
        output=out,
    )
    losses = [epoch.loss for epoch in result.run.epoch_reports]
    assert losses[-1] < losses[0]
    assert load_fine_tuned_model(out).predict(tagged()) == result.model.predict(tagged())


def test_bilstm_on_frozen_features_learns(pretrained) -> None:
    head = {"kind": "bilstm", "width": 32, "depth": 1, "layers": "last-2"}
    result = adapted(
        pretrained("bert"),
        "frozen",
        TAGS,
        tagged(),
        head=head,
        epochs=30,
        learning_rate=2e-2,
        make_reporter=until(0.95),
    )
    assert result.scores[0] > 0.9


def test_last_max_mean_is_three_vectors_wide(pretrained) -> None:
    head = {"kind": "dense", "pooling": "last-max-mean"}
    result = adapted(pretrained("bert"), "full", head=head, epochs=1)
    assert result.model.task_model.head.trunk.dense.weight.shape[0] == 3 * 32


@pytest.mark.parametrize(
    "head",
    [{"pooling": "first"}, {"layers": 1}, {"layers": "all", "mix": "sum", "pooling": "last"}],
)
def test_head_overrides_keep_the_rest_of_the_default_head(pretrained, head: Any) -> None:
    usual = adapted(pretrained("bert"), "frozen", epochs=1).model.task_model.head_config
    result = adapted(pretrained("bert"), "frozen", head=head, epochs=1).model.task_model.head_config
    assert result == usual.copy_with("head", **head)
    assert type(result) is type(usual)
    assert result != usual


@pytest.mark.parametrize(
    ("system", "adaptation", "message"),
    [
        ("albert", "gradual", "blocks that share parameters form one level"),
        ("albert", {"kind": "last", "blocks": 1}, "blocks that share parameters"),
        ("albert", {"kind": "full", "reinitialised_blocks": 1}, "cannot be"),
        ("bert", {"kind": "full", "reinitialised_blocks": 9}, "9 is more than the 2 blocks"),
        ("bert", {"kind": "last", "blocks": 3}, "3 is more than the 2 blocks"),
        ("bert", {"kind": "lora", "rank": 33}, "33 is more than 32, the highest rank"),
        ("bert", "lroa", "has no kind 'lroa': did you mean 'lora'"),
        ("word2vec", "adapters", "has no blocks to adapt: choose full or frozen"),
    ],
)
def test_incompatible_adaptation_is_reported_in_one_sentence(
    pretrained, system: str, adaptation: Any, message: str
) -> None:
    with pytest.raises(UserError, match=message) as caught:
        adapted(pretrained(system), adaptation)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("loss", "examples"),
    [("cosine", similar()), ("in-batch", partners()), ("triplet", partners())],
)
def test_nothing_to_train_is_refused_unless_only_evaluated(
    pretrained, loss: str, examples: Any
) -> None:
    task = Task("near", SimilarityOutput.model_validate({"loss": loss, "max_label": 5.0}))
    with pytest.raises(UserError, match=r"nothing is trained: .* lora or full, or epochs=0"):
        adapted(pretrained("bert"), "frozen", task, examples)
    with pytest.raises(UserError, match=r"nothing is trained: .* or epochs=0"):
        adapted(pretrained("bert"), {"kind": "last", "blocks": 0}, task, examples)
    assert adapted(pretrained("bert"), "frozen", task, examples, epochs=0).scores
    assert adapted(pretrained("bert"), "lora", task, examples, epochs=1).scores


@pytest.mark.parametrize("blocks", [1, 2])
def test_last_blocks_are_counted_without_parameters_of_a_head(pretrained, blocks: int) -> None:
    model, task = pretrained("bert"), Task("near", SimilarityOutput(max_label=5.0))
    result = adapted(model, {"kind": "last", "blocks": blocks}, task, similar(), epochs=1)
    assert not [*result.run.model.head_of(0).parameters()]
    assert changed_parts(model, result) == {str(n) for n in range(2 - blocks, 2)}
    gradual = adapted(model, "gradual", task, similar(), epochs=2).run
    levels = [gradual.model.adaptation.num_trainable_levels(n, 3, 2) for n in range(3)]
    assert levels == [2, 3, None]


@pytest.mark.parametrize("adaptation", ADAPTATIONS, ids=str)
def test_default_learning_rate_after_muon(adaptation: Any) -> None:
    adaptation = AdaptationConfig.parse(adaptation)
    by_muon, by_adam = Recipe.load("modern-mini"), Recipe.load("bert-mini")
    assert by_muon.encoder.width == by_adam.encoder.width
    rates = [adaptation.default_learning_rate(recipe) for recipe in (by_muon, by_adam)]
    assert (rates[0] > rates[1]) == (not adaptation.is_parameter_efficient)
    assert rates[0] >= rates[1] > 0


def test_every_kind_is_tested() -> None:
    tried = {
        adaptation if isinstance(adaptation, str) else adaptation["kind"]
        for adaptation in ADAPTATIONS
    }
    # tests/compression covers pruning and quantization.
    kinds = AdaptationConfig.kinds().items()
    # test_knowledge_adapters covers reading trained ones.
    modules = [f"bertwright.tasks.adapters.{name}" for name in ("adaptation", "knowledge")]
    tested = {*tried, "knowledge-fusion"}
    assert tested == {kind for kind, cls in kinds if cls.__module__ in modules}
