"""Packed batches: the loss and the gradient of padded ones, in fewer rows."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertwright.core.errors import UserError
from bertwright.tasks.finetuning.batching.batches import TaskBatch, TaskBatchSource
from bertwright.tasks.finetuning.batching.encoded_task import TaskSchedule, batch_samplers
from bertwright.tasks.finetuning.batching.packing import SequencePacking, pack_first_fit
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.finetuning.run import FineTuningRun
from bertwright.tasks.finetuning.task_losses import TaskLosses
from bertwright.tasks.formats.examples import Example, TaggedSentence
from bertwright.tasks.outputs import OutputType
from bertwright.tasks.task import Task
from bertwright.training.clock import Progress
from small_tasks import TEXTS, numbers, options, pairs, partners, questions, tagged
from toy_recipes import marked_systems, published

LONG = " ".join(TEXTS[:2])

UNMIXED = {"dropout": 0.0, "batch_size": 8, "compile": False, "epochs": 1, "calibrate": False}


def short_and_long(examples: list[Any]) -> list[Any]:
    """Return eight examples, one much longer than the others."""
    longest = replace(examples[7], text=f"{examples[7].text} {LONG}")
    return [*examples[:7], longest]


def short_pairs() -> list[Example]:
    """Return pairs of texts of three words, one of them longer."""
    short = [replace(e, text=e.text[:12], pair=(e.pair or "")[:12]) for e in pairs()]
    return [*short[:7], replace(short[7], text=LONG)]


def short_sentences() -> list[TaggedSentence]:
    """Return tagged sentences of three words, and a longer one."""
    sentences = tagged()[:8]
    lengths = [*[3] * 7, 8]
    return [
        TaggedSentence(s.words[:n], (s.tags or ())[:n])
        for s, n in zip(sentences, lengths, strict=True)
    ]


def labelled() -> list[Example]:
    words = [text.split() for text in TEXTS]
    short = [
        Example(" ".join(w[: 2 + n]), label="old" if n % 2 else "new") for n, w in enumerate(words)
    ]
    return short_and_long(short)


def step_of(
    model: Any, kind: Any, examples: list[Any], batching: str, **settings: Any
) -> tuple[FineTuningRun, TaskBatch, dict[str, torch.Tensor], float]:
    """Return a run, its first batch, and the gradient and the loss of this batch."""
    output_type = OutputType.parse(kind)
    task = Task("task", output_type).with_labels_from(examples)
    config = FineTuningConfig.from_settings({**UNMIXED, **settings, "batching": batching})
    run = build_run(model, [(task, examples, examples)], config)
    run.init_parameters(0)
    samplers = batch_samplers(run.encoded_tasks, config.batch_size, 0, config.batching)
    schedule = TaskSchedule.from_samplers(samplers, 1.0, 0)
    batches = TaskBatchSource(
        model,
        run.encoded_tasks,
        samplers,
        schedule,
        run.used_vocabulary,
        config.language_model > 0,
        config.batching == "packed",
    )
    (batch,) = batches.at(Progress(0, 0.0)).micro_batches
    losses = TaskLosses(run, 0, None)(batch, Progress(0, 0.0))
    loss = torch.stack([loss.sum / loss.count for loss in losses.values()]).sum()
    loss.backward()
    gradients = {n: p.grad for n, p in run.model.named_parameters() if p.grad is not None}
    return run, batch, gradients, float(loss.detach())


def require_equal_steps(model: Any, kind: Any, examples: list[Any], **settings: Any) -> None:
    _, padded_batch, padded, padded_loss = step_of(model, kind, examples, "padded", **settings)
    _, batch, packed, loss = step_of(model, kind, examples, "packed", **settings)
    assert torch.equal(batch.token_ids, padded_batch.token_ids)
    assert batch.packing is not None
    assert len(batch.packing.sources) < len(batch.token_ids)
    assert loss == pytest.approx(padded_loss, rel=1e-5)
    assert packed.keys() == padded.keys()
    scale = max(float(gradient.abs().max()) for gradient in padded.values())
    for name, gradient in padded.items():
        torch.testing.assert_close(packed[name], gradient, rtol=1e-4, atol=1e-5 * scale, msg=name)


UNPACKABLE = ("performer", "reformer")

PACKABLE = [
    system
    for system in (str(p.values[0]) for p in marked_systems() if not p.marks)
    if published(system).text.tokenizer.kind in ("wordpiece", "byte-bpe")
    and system not in UNPACKABLE
]
"""A system of each encoder whose attention mask can separate texts."""


@pytest.mark.parametrize("system", PACKABLE)
def test_a_packed_step_equals_the_padded_one(pretrained, system: str) -> None:
    require_equal_steps(pretrained(system), "class", labelled())


@pytest.mark.parametrize(
    ("kind", "examples"),
    [
        ("number", short_and_long(numbers())),
        ("tags", short_sentences()),
        ({"kind": "span", "stride": 8}, short_and_long(questions())),
        ("option", short_and_long(options())),
        ("similarity", short_and_long(partners())),
        ("late-interaction", short_and_long(partners())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_packing_changes_no_task(pretrained, kind: Any, examples: list[Any]) -> None:
    if kind == "similarity":
        kind = {"kind": kind, "loss": "in-batch"}
    require_equal_steps(pretrained(), kind, examples)


@pytest.mark.parametrize(
    "settings",
    [
        {"head": {"pooling": "siamese"}},
        {"head": {"kind": "san"}},
        {"head": {"layers": "all", "mix": "mean", "pooling": "mean"}},
        {"adaptation": "lora"},
        {"adaptation": "adapters"},
        {"adaptation": "gradual"},
    ],
    ids=str,
)
def test_packing_changes_neither_heads_nor_adapters(pretrained, settings: dict[str, Any]) -> None:
    require_equal_steps(pretrained("bert"), "class", short_pairs(), **settings)


def test_generated_texts_attend_to_their_source_only(pretrained) -> None:
    examples = [replace(example, label="old") for example in labelled()]
    kind = {"kind": "text", "max_target_length": 4}
    require_equal_steps(pretrained("bart"), kind, examples)


def test_the_language_model_loss_of_packed_texts_is_equal(pretrained) -> None:
    require_equal_steps(pretrained("gpt-2"), "class", labelled(), language_model=0.5)


def test_a_model_trained_in_packed_rows_keeps_its_attention_mask(pretrained) -> None:
    settings = {**UNMIXED, "batching": "packed"}
    task = Task("task", OutputType.parse("class"))
    result = finetune(pretrained(), task, train=labelled(), dev=labelled(), **settings)
    visibility = result.model.task_model.recipe.encoder.visibility
    assert visibility == pretrained().model.recipe.encoder.visibility


@pytest.mark.parametrize(
    ("system", "settings", "reason"),
    [
        ("bert", {"adaptation": "frozen"}, "the features of every example once"),
        ("bert", {"perturbation": "freelb"}, "perturbation changes the embeddings"),
        ("performer", {}, "with this encoder: .*bidirectional and causal visibility only"),
        ("reformer", {}, "with this encoder: .*bidirectional and causal visibility only"),
    ],
)
def test_packing_is_refused_with_the_reason(
    pretrained, system: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(UserError, match=reason):
        step_of(pretrained(system), "class", labelled(), "packed", **settings)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_rows_hold_every_token_once(lengths: list[int]) -> None:
    longest = max(lengths)
    rows = pack_first_fit(lengths, longest)
    assert sorted(n for row in rows for n in row) == list(range(len(lengths)))
    assert all(sum(lengths[n] for n in row) <= longest for row in rows)
    # At most one row is half empty, so there are fewer than twice as many rows as needed.
    assert len(rows) <= 2 * sum(lengths) / longest + 1
    packing = SequencePacking.from_lengths(lengths, longest, torch.device("cpu"))
    assert (packing is None) == (len(rows) == len(lengths))
    if packing is not None:
        flat = torch.arange(len(lengths) * longest).view(-1, longest)
        restored = packing.unpack(packing.sources[..., None])[..., 0]
        real = torch.arange(longest) < torch.tensor(lengths)[:, None]
        assert torch.equal(restored[real], flat[real])
        assert int(packing.is_real.sum()) == sum(lengths)
