"""Output types: each is learned, in windows where texts are long, and decoded."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.finetuning.finetune import FineTuningResult, finetune
from bertwright.tasks.formats.examples import (
    Example,
    ExtractiveQuestion,
    MultipleChoice,
    TaggedSentence,
    TaskExample,
)
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.outputs import (
    ClassificationOutput,
    MultiLabelOutput,
    MultipleChoiceOutput,
    OutputType,
    SimilarityOutput,
    SpanOutput,
)
from bertwright.tasks.task import Task
from small_tasks import (
    TEXTS,
    classes,
    numbers,
    options,
    pairs,
    partners,
    questions,
    several_labels,
    similar,
    tagged,
    until,
)
from toy_recipes import toy

MEMORISE = {
    "learning_rate": 3e-3,
    "dropout": 0.0,
    "weight_decay": 0.0,
    "compile": False,
    "batch_size": 8,
}


def learned(model, output_type: Any, examples: list[Any], **settings: Any) -> FineTuningResult:
    task = Task("task", OutputType.parse(output_type))
    return finetune(model, task, train=examples, dev=examples, **{**MEMORISE, **settings})


every_system = pytest.mark.parametrize("system", ["bert", "modern", "gpt-2"])


@every_system
@pytest.mark.parametrize(
    ("output_type", "examples"),
    [
        ("labels", several_labels()),
        ("option", options()),
        ({"kind": "span", "unanswerable": True}, questions()),
        ({"kind": "similarity", "max_label": 5.0}, similar()),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_output_type_is_learned(
    pretrained, system: str, output_type: Any, examples: list[Any]
) -> None:
    untrained = learned(pretrained(system), output_type, examples, epochs=0).scores[0]
    enough = until(max(0.81, untrained + 0.01))
    result = learned(pretrained(system), output_type, examples, epochs=30, make_reporter=enough)
    assert result.scores[0] > 0.8
    assert result.scores[0] > untrained


@pytest.mark.parametrize(
    "output_type",
    [
        {"kind": "sparse"},
        {"kind": "sparse", "queries": "static"},
        {"kind": "late-interaction", "dimension": 16, "query_length": 8},
    ],
    ids=["sparse", "static queries", "late interaction"],
)
def test_retrieval_is_learned(pretrained, output_type: dict[str, Any]) -> None:
    untrained = learned(pretrained("bert"), output_type, partners(), epochs=0).scores[0]
    enough = until(max(0.81, untrained + 0.01))
    result = learned(pretrained("bert"), output_type, partners(), epochs=30, make_reporter=enough)
    assert result.metric == "ndcg@10"
    assert result.scores[0] > max(0.8, untrained)


@every_system
@pytest.mark.parametrize(
    ("loss", "epochs"),
    [
        ({"loss": "in-batch", "matryoshka_dims": [8]}, 45),
        pytest.param({"loss": "triplet"}, 30, marks=pytest.mark.full),
    ],
)
def test_similarity_is_learned_from_pairs(
    pretrained, system: str, loss: dict[str, Any], epochs: int
) -> None:
    output_type = {"kind": "similarity", **loss}
    result = learned(pretrained(system), output_type, partners(), epochs=epochs)
    losses = [epoch.loss for epoch in result.run.epoch_reports]
    assert losses[-1] < 0.5 * losses[0]


def test_relevance_ranks_the_texts_of_a_query(pretrained) -> None:
    examples = [
        Example(f"a {colour} thing", text, float(colour in text))
        for colour in ("red", "green")
        for text in TEXTS[::2]
    ]
    result = learned(
        pretrained("bert"),
        "relevance",
        examples,
        epochs=120,
        learning_rate=2e-3,
        make_reporter=until(0.95),
    )
    assert result.metric == "ndcg@10"
    assert result.scores[0] > 0.9
    assert all(0 <= p.value <= 1 for p in result.best.predictions[0])


@pytest.mark.parametrize("loss", ["in-batch", "triplet"])
def test_only_matching_pairs_are_trained(pretrained, loss: str) -> None:
    output_type = {"kind": "similarity", "loss": loss, "max_label": 4.0}
    labels = (4.0, 2.0, None, 1.9, 0.0)
    examples = [replace(e, label=labels[n % 5]) for n, e in enumerate(partners())]
    (encoded,) = learned(pretrained(), output_type, examples, epochs=1).run.encoded_tasks
    assert [e.label for e in encoded.train] == [e.label for e in examples if e.label in labels[:3]]
    assert len(encoded.items) == len(encoded.train)
    assert len(encoded.dev) == len(examples), "all are evaluated"
    non_matching = [replace(e, label=0.0) for e in partners()]
    with pytest.raises(UserError, match=r"label is 2 or more, half of output_type\.max_label"):
        learned(pretrained(), output_type, non_matching, epochs=1)


def test_in_batch_negatives_exclude_other_positives() -> None:
    examples = [
        Example("fruit", "apple"),
        Example("sweet", "apple", negatives=("lemon",)),
        Example("fruit", "lemon", negatives=("stone",)),
        Example("hard", "stone"),
    ]
    decoder = (
        SimilarityOutput(loss="in-batch", contrastive_temperature=1.0)
        .build_decoder(())
        .fit(examples)
    )
    # Indices of second texts, then negatives; other positives of the same anchor are left out.
    candidates = {"fruit": (0, 3, 5), "sweet": (1, 2, 3, 4, 5), "again": (2, 3, 5)}
    candidates["hard"] = (0, 1, 2, 3, 4)
    outputs = torch.randn(10, 8, generator=torch.Generator().manual_seed(3))
    unit = torch.nn.functional.normalize(outputs, dim=1)
    firsts, texts = unit[[0, 2, 5, 8]], unit[[1, 3, 6, 9, 4, 7]]
    expected = torch.tensor(0.0)
    for number, candidate_indices in enumerate(candidates.values()):
        scores = firsts[number] @ texts[list(candidate_indices)].T
        expected += scores.logsumexp(0) - firsts[number] @ texts[number]
    sequences = [[TaskSequence([], number)] for number in range(len(examples))]
    targets = [
        t
        for sequence, e in zip(sequences, examples, strict=True)
        for t in decoder.targets(sequence, e)
    ]
    loss, _ = decoder.loss(outputs, [2, 3, 3, 2], torch.tensor(targets))
    torch.testing.assert_close(loss, expected)


def test_retrieval_ranks_all_second_texts(pretrained) -> None:
    task = table_task("task", Columns(), SimilarityOutput(loss="in-batch"), ("recall@1", "mrr@10"))
    settings = {**MEMORISE, "epochs": 40, "make_reporter": until(0.9)}
    result = finetune(pretrained("bert"), task, train=partners(), dev=partners(), **settings)
    assert result.scores[0] > 0.8
    assert result.best.report.scores["task"]["mrr@10"] >= result.scores[0]


def test_similarity_uses_the_vectors_of_embed(pretrained) -> None:
    model = learned(
        pretrained("bert"), {"kind": "similarity", "max_label": 5.0}, similar(), epochs=2
    )
    first, second = TEXTS[:2]
    a, b = model.model.embed([first, second], normalise=True)
    (prediction,) = model.model.predict([(first, second)])
    assert prediction.value == pytest.approx(float(a @ b), abs=1e-2)


def label_gradients(
    output_type: ClassificationOutput | MultiLabelOutput, examples: list[Example], label: str
) -> tuple[float, ...]:
    """Return the gradients at outputs 0, of examples with the label and without it."""
    task = Task("task", output_type).with_labels_from(examples)
    decoder = output_type.build_decoder(task.labels).fit(examples)
    column = task.labels.index(label)
    gradients = {True: 0.0, False: 0.0}
    for example in examples:
        targets = torch.tensor(decoder.targets([], example))
        outputs = torch.zeros(1, len(task.labels), requires_grad=True)
        loss, _ = decoder.loss(outputs, [1], targets)

        (gradient,) = torch.autograd.grad(loss, outputs)
        has = label in output_type.labels_in(example)
        gradients[has] += abs(float(gradient[0, column]))
    return gradients[True], gradients[False]


def test_balanced_weights_equalise_gradients_of_rare_labels() -> None:
    rare = [replace(e, label="old" if n < 2 else "new") for n, e in enumerate(classes())]
    first, second = (
        label_gradients(ClassificationOutput(weights="balanced"), rare, of)[0]
        for of in ("old", "new")
    )
    assert first == pytest.approx(second)
    plain = [label_gradients(ClassificationOutput(), rare, of)[0] for of in ("old", "new")]
    assert plain[1] / plain[0] == pytest.approx((len(rare) - 2) / 2)
    several = [replace(e, label=("old",) if n < 3 else ()) for n, e in enumerate(classes())]
    having, others = label_gradients(MultiLabelOutput(weights="balanced"), several, "old")
    assert having == pytest.approx(others)
    having, others = label_gradients(MultiLabelOutput(weights={"old": 4.0}), several, "old")
    assert others / having == pytest.approx((len(several) - 3) / (4 * 3))


@pytest.mark.parametrize("output_type", [ClassificationOutput, MultiLabelOutput])
def test_weight_of_an_unknown_label_is_refused(
    output_type: type[ClassificationOutput | MultiLabelOutput],
) -> None:
    with pytest.raises(
        UserError, match=r"output_type\.weights: no label 'odl': did you mean 'old'"
    ):
        output_type(weights={"odl": 2.0}).build_decoder(("new", "old"))


@pytest.mark.parametrize("output_type", ["class", "number", "labels"])
def test_a_long_text_is_read_in_windows(pretrained, output_type: str) -> None:
    examples = {"class": classes, "number": numbers, "labels": several_labels}[output_type]()
    long = [replace(e, text=f"{' the' * 40} {e.text}") for e in examples]
    settings = {"epochs": 1, "max_length": 16}
    cut = learned(pretrained(), output_type, long, **settings)
    whole = learned(pretrained(), {"kind": output_type, "stride": 6}, long, **settings)
    assert cut.num_truncated == {"task": len(long)}
    assert whole.num_truncated == {"task": 0}
    assert len(whole.run.encoded_tasks[0].sequences) > len(long)
    assert len(whole.best.predictions[0]) == len(long)


def test_windows_contain_every_token(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 10)
    ids = wordpiece.encode("the red bird is old and remarkably large and the tree is new")
    sequences = encoder.encode(
        [Example("the red bird is old and remarkably large and the tree is new")], 3
    )
    assert set(ids) <= {token for row in sequences for token in row.token_ids}
    assert all(len(row.token_ids) <= 10 for row in sequences)
    assert sequences[-1].token_ids[-2] == ids[-1]
    pairs = encoder.encode(
        [Example("the red bird", "is old and remarkably large and the tree")], 100
    )
    assert {row.example_index for row in pairs} == {0}
    assert all(len(row.token_ids) <= 10 for row in pairs)


def test_span_targets_decode_to_the_answer_in_every_window(wordpiece) -> None:
    text = "the tree and the river and the red bird is remarkably old"
    question = ExtractiveQuestion("which bird", text, ("red bird",), (text.index("red"),))
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 16)
    decoder = SpanOutput(stride=3).build_decoder(())
    sequences = decoder.encode(encoder, [question])
    assert len(sequences) > 1
    answers: list[str] = []
    for row in sequences:
        first, last = decoder.targets([row], question)
        assert row.positions[0] == 0
        if last:
            start, stop = row.offsets[first - 1][0], row.offsets[last - 1][1]
            answers.append(text[start:stop])
    assert answers
    assert set(answers) == {"red bird"}


@pytest.mark.parametrize("unanswerable", [False, True])
def test_best_span_or_no_answer_is_predicted(wordpiece, unanswerable: bool) -> None:
    text = "the red bird is old"
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 32)
    decoder = SpanOutput(unanswerable=unanswerable).build_decoder(())
    (row,) = decoder.encode(encoder, [ExtractiveQuestion("which", text)])
    outputs = np.full((len(row.positions), 2), -5.0, np.float32)
    outputs[2, 0], outputs[3, 1] = 4.0, 4.0
    (prediction,) = decoder.decode([row], [outputs], [ExtractiveQuestion("which", text)])
    assert prediction.value == "red bird"
    outputs[0] = 9.0
    (prediction,) = decoder.decode([row], [outputs], [ExtractiveQuestion("which", text)])
    assert prediction.value == ("" if unanswerable else "red bird")


@pytest.mark.parametrize("unanswerable", [False, True])
def test_a_span_is_as_probable_in_two_windows_as_in_one(wordpiece, unanswerable: bool) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 32)
    question = ExtractiveQuestion("which", "the red bird is old and the tree is new")
    decoder = SpanOutput(unanswerable=unanswerable).build_decoder(())
    (row,) = decoder.encode(encoder, [question])
    outputs = np.random.default_rng(0).normal(0, 2, (len(row.positions), 2)).astype(np.float32)
    once, often = (decoder.decode([row] * times, [outputs] * times, [question]) for times in (1, 3))
    assert once == often


def test_span_end_is_not_before_its_start(wordpiece) -> None:
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 32)
    question = ExtractiveQuestion("which", "the red bird is old")
    decoder = SpanOutput(max_answer_length=1).build_decoder(())
    (row,) = decoder.encode(encoder, [question])
    outputs = np.zeros((len(row.positions), 2), np.float32)
    outputs[4, 0], outputs[2, 1] = 5.0, 5.0
    (prediction,) = decoder.decode([row], [outputs], [question])
    assert prediction.value in ("is", "red")
    assert len(str(prediction.value).split()) == 1


def test_options_may_differ_in_number() -> None:
    decoder = MultipleChoiceOutput().build_decoder(())
    outputs = torch.tensor([[1.0], [2.0], [0.0], [3.0], [1.0]])
    loss, right = decoder.loss(outputs, [2, 3], torch.tensor([1, 1]))
    expected = -torch.log_softmax(outputs[:2, 0], 0)[1] - torch.log_softmax(outputs[2:, 0], 0)[1]
    assert loss == pytest.approx(float(expected))
    assert int(right) == 2


@pytest.mark.parametrize(
    ("output_type", "example", "message"),
    [
        ("class", TaggedSentence(("a",), ("b",)), "output type class needs Example"),
        ("tags", Example("a", label="b"), "output type tags needs TaggedSentence"),
        ("span", MultipleChoice("a", ("b",), label=0), "output type span needs ExtractiveQuestion"),
        ("similarity", Example("a", label=1.0), "a second text is needed"),
        (
            {"kind": "similarity", "loss": "triplet"},
            Example("a", "b"),
            "the loss triplet needs a third text",
        ),
        (
            "similarity",
            Example("a", "b", 5.0, location="x line 3"),
            "x line 3: .* output_type.max_label",
        ),
        ("similarity", Example("a", "b", -1.0), "the label -1 is not from 0 to 1"),
        (
            {"kind": "similarity", "max_label": 5.0},
            Example("a", "b", 1.0),
            "the highest label is 1, but output_type.max_label, .* is 5",
        ),
        (
            "relevance",
            Example("a", "b", -1.0, location="x line 3"),
            "x line 3: the label -1 is below",
        ),
        (
            "class",
            Example(None, label="b", location="x line 3"),  # type: ignore[arg-type]
            "x line 3: None stands where a text is needed",
        ),
        ("class", Example("a", 5, "b"), "5 stands where a text is needed"),  # type: ignore[arg-type]
        (
            "similarity",
            Example("a", "b", negatives=(float("nan"),)),  # type: ignore[arg-type]
            "nan stands where a text is needed",
        ),
        ("option", MultipleChoice("a", ("b", None), label=0), "None stands"),  # type: ignore
    ],
)
def test_example_of_the_wrong_type_is_refused(
    pretrained, output_type: Any, example: TaskExample, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        learned(pretrained(), output_type, [example] * 4)


@pytest.mark.parametrize("part", ["train", "dev"])
def test_a_split_without_examples_is_refused(pretrained, part: str) -> None:
    splits: Any = {"train": classes(), "dev": classes(), part: []}
    task = Task("task", ClassificationOutput(), labels=("new", "old"))
    with pytest.raises(UserError, match="split has no examples"):
        finetune(pretrained(), task, **splits)


def test_inputs_that_are_no_texts_are_refused(pretrained) -> None:
    model = learned(pretrained(), "class", classes(), epochs=0).model
    for item in (None, 5, ("a", "b", "c"), ("a", None), (), Example(None)):  # type: ignore[arg-type]
        with pytest.raises(UserError, match="give a text"):
            model.predict([item])  # type: ignore[list-item]
    choosing = learned(pretrained(), "option", options(), epochs=0).model
    with pytest.raises(UserError, match="has no options: give one or more"):
        choosing.predict([MultipleChoice("a", ())])


def test_words_and_tags_may_be_lists(pretrained) -> None:
    lists: Any = [TaggedSentence([*e.words], [*(e.tags or ())]) for e in tagged()]  # type: ignore
    scores = [learned(pretrained(), "tags", e, epochs=1).scores for e in (tagged(), lists)]
    assert scores[0] == scores[1]


def test_unseen_tags_are_never_predicted(pretrained) -> None:
    odd = [TaggedSentence(("The", "red"), ("O", "B-NEW"))]
    task = Task("task", OutputType.parse("tags"))
    result = finetune(pretrained(), task, train=tagged(), dev=odd, epochs=1, **MEMORISE)
    assert result.best.predictions[0][0].value[1] != "B-NEW"


CLOZE = {"kind": "cloze", "template": "{text} and [MASK]", "words": {"old": "old", "new": "new"}}


def test_cloze_predicts_without_training_and_learns(pretrained) -> None:
    for system in ("bert", "modern"):
        model = pretrained(system)
        before = learned(model, CLOZE, classes(), epochs=0)
        result = learned(model, CLOZE, classes(), epochs=16, make_reporter=until(0.95))
        assert result.scores[0] > 0.9
        (prediction,) = before.model.predict(["The red bird is old"])
        mask = model.fill_mask("The red bird is old and [MASK]", top_k=model.tokenizer.vocab_size)[
            0
        ]
        chances = {candidate.token: candidate.probability for candidate in mask}
        ratio = chances["old"] / (chances["old"] + chances["new"])
        uncalibrated = learned(model, CLOZE, classes(), epochs=0, calibrate=False)
        (prediction,) = uncalibrated.model.predict(["The red bird is old"])
        assert prediction.probabilities["old"] == pytest.approx(ratio, abs=2e-2)


def test_mask_is_kept_when_a_text_is_truncated(wordpiece) -> None:
    decoder = OutputType.parse(CLOZE).build_decoder(("new", "old"))
    encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 12)
    (row,) = decoder.encode(encoder, [Example("the red bird " * 20)])
    assert len(row.token_ids) == 12
    assert row.token_ids[row.positions[0]] == wordpiece.special_tokens.mask
    assert row.num_truncated > 0


def test_mask_position_is_that_of_the_template(wordpiece) -> None:
    plain, odd = "the red bird", "the [MASK] bird"
    for template, gap in (("{text} and [MASK]", -2), ("[MASK] {text} [SEP]", 1)):
        decoder = OutputType.parse({**CLOZE, "template": template}).build_decoder(("new", "old"))
        encoder = ExampleEncoder.from_recipe(toy("bert"), wordpiece, 12)
        for row in decoder.encode(encoder, [Example(plain), Example(odd), Example(odd * 9)]):
            assert row.positions == (gap % len(row.token_ids),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"words": {"old": "unbelievably old"}}, "'unbelievably old' is not a single token"),
        (
            {"words": {"old": "bird", "new": "Bird"}},
            "'(old|new)' and '(old|new)' share the token 'bird'",
        ),
        ({"words": {"odl": "old"}}, "no example has the label 'odl': did you mean 'old'?"),
        ({"template": "{text}"}, r"must contain \{text\}, and \[MASK\] once"),
        ({"template": "{text} {pair} [MASK]"}, "there is no second text"),
    ],
)
def test_invalid_cloze_is_refused(pretrained, changes: Any, message: str) -> None:
    with pytest.raises((UserError, ValueError), match=message):
        learned(pretrained(), {**CLOZE, **changes}, classes(), epochs=0)


def test_cloze_template_without_pair_is_refused_for_pairs(pretrained) -> None:
    with pytest.raises(UserError, match=r"has a second text.* add \{pair\} to it"):
        learned(pretrained(), CLOZE, pairs(), epochs=0)


def test_cloze_needs_a_masked_language_model(pretrained) -> None:
    with pytest.raises(UserError, match="gpt is causal: use prompt"):
        learned(pretrained("gpt"), CLOZE, classes(), epochs=0)
