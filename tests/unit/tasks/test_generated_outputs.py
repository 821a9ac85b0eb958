"""Texts that a decoder generates: loss, likelihood, predictions, and answers in words."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bertwright.core.errors import UserError
from bertwright.core.rng import RandomPermutation
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    WordLevelConfig,
    WordPieceConfig,
)
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.text_model import TextModel
from bertwright.modules.token_tensors import CrossAttentionSource, TokenInfo
from bertwright.tasks.baselines.fit_baselines import fit_baselines
from bertwright.tasks.catalogue import answered_in_words, find_task
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.finetuning.batching.batches import TaskBatchSource, build_task_batch
from bertwright.tasks.finetuning.batching.encoded_task import TaskSchedule, batch_samplers
from bertwright.tasks.finetuning.build_run import build_run
from bertwright.tasks.finetuning.config import FineTuningConfig
from bertwright.tasks.finetuning.finetune import finetune, finetune_tasks
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs import (
    ClassInWordsOutput,
    NumberInWordsOutput,
    OutputType,
    Prediction,
    TextOutput,
)
from bertwright.tasks.outputs.text.verbalised import NumberInWordsDecoder
from bertwright.tasks.task import Task
from bertwright.testing.tasks import check_task
from bertwright.testing.toy import randomise, toy_text_model
from bertwright.training.clock import Progress

WORDS = ["one", "two", "three", "four", "five"]
PAIRS = [
    Example(" ".join(words), label=" ".join(words[: 1 + number % 3]))
    for number, words in enumerate(permutations(WORDS, 4))
]
TASK = Task("first-words", TextOutput(main_metric="inverse-perplexity", max_target_length=8))
STILL = {"dropout": 0.0, "precision": "float32", "compile": False}


@pytest.fixture(scope="module", params=["t5", "bart", "mass", "transformer"])
def pretrained(request: pytest.FixtureRequest) -> TextModel:
    return random_model(request.param)


def random_model(recipe: str, *changes: str) -> TextModel:
    model = toy_text_model([e.text for e in PAIRS], *changes, recipe=recipe)
    randomise(model.model, 0.3)
    return model


def log_likelihood(model: TextModel, source: list[int], target: list[int]) -> float:
    """Return the sum of the log-probabilities of a target, from one unpadded pass."""
    net, specials = model.model, model.tokenizer.special_tokens
    (objective,) = net.recipe.objectives.values()
    source_ids = torch.tensor([source])
    inputs = torch.tensor([[getattr(specials, objective.noising.begins), *target[:-1]]])
    with torch.no_grad():
        states = CrossAttentionSource(net(source_ids), TokenInfo.from_token_ids(source_ids))
        assert net.decoder is not None
        # The loss also ranks the rows of the table without a token, as in pre-training.
        logs = net.full_logits(net.decoder.decode(inputs, states)[0]).log_softmax(-1)
    return float(logs[range(len(target)), target].sum())


def test_the_loss_is_of_the_target_tokens_given_source_and_earlier_tokens(pretrained) -> None:
    model = random_model(pretrained.model.recipe.name, "output.smoothing=0.0")
    run = build_run(model, [(TASK, PAIRS, PAIRS[:2])], FineTuningConfig.from_settings(STILL))
    (encoded,) = run.encoded_tasks
    run.init_parameters(0)
    items = [4, 0, 2, 1, 1]
    batch = build_task_batch(encoded, items, 12, model, num_real=4)
    assert batch.decoder_inputs is not None
    with torch.no_grad():
        states = run.model.hidden_states(0, batch.token_ids, batch.token_info)
        loss = run.model.text_loss(states, batch.token_info, batch.decoder_inputs, batch.targets)
    sequences = [encoded.sequences[item] for item in items[:4]]
    expected = [log_likelihood(model, s.token_ids, [*s.target_ids]) for s in sequences]
    assert float(loss.sum) == pytest.approx(-sum(expected), rel=1e-5)
    assert loss.count == sum(len(s.target_ids) for s in sequences)


def test_micro_batches_and_counts_cover_every_target_token_once() -> None:
    model = random_model("bart")
    run = build_run(model, [(TASK, PAIRS, PAIRS[:2])], FineTuningConfig.from_settings(STILL))
    samplers = batch_samplers(run.encoded_tasks, 32, 0)
    schedule = TaskSchedule.from_samplers(samplers, 1.0, 0)
    batches = TaskBatchSource(model, run.encoded_tasks, samplers, schedule)
    steps = [batches.at(Progress(n, 0.0)) for n in range(schedule.steps_per_epoch)]
    total = sum(len(targets) for targets in run.encoded_tasks[0].targets)
    assert sum(len(m.targets) for step in steps for m in step.micro_batches) == total


def test_an_untrained_run_predicts_what_the_pretrained_model_generates(pretrained) -> None:
    result = finetune(pretrained, TASK, train=PAIRS[8:], dev=PAIRS[:8], epochs=0, **STILL)
    texts = [example.text for example in PAIRS[:8]]
    predictions = result.model.predict(PAIRS[:8])
    generated = pretrained.generate(texts, temperature=0, max_new_tokens=8)
    assert [p.value for p in predictions] == [g.text.strip() for g in generated]
    result.model.set_generation(num_beams=3, length_penalty=0.5)
    beams = pretrained.generate(texts, num_beams=3, length_penalty=0.5, max_new_tokens=8)
    assert [p.value for p in result.model.predict(texts)] == [g.text.strip() for g in beams]
    sources = result.model.output_decoder.encode(result.model.example_encoder, PAIRS[:8])
    logs = [log_likelihood(pretrained, s.token_ids, [*s.target_ids]) for s in sources]
    num_tokens = sum(len(s.target_ids) for s in sources)
    expected = torch.tensor(sum(logs) / num_tokens).exp()
    assert result.scores == [pytest.approx(float(expected), rel=1e-4)]


def test_truncated_targets_have_no_end_token() -> None:
    model = random_model("bart")
    task = replace(TASK, output_type=TextOutput(template="say: {text}", max_target_length=3))
    run = build_run(
        model,
        [(task, PAIRS, PAIRS[:2])],
        FineTuningConfig.from_settings({**STILL, "max_length": 10}),
    )
    end = model.tokenizer.special_tokens.end
    for sequence, example in zip(run.encoded_tasks[0].sequences, PAIRS, strict=True):
        target = [*model.tokenizer.encode(str(example.label)), end]
        source = model.tokenizer.encode(f"say: {example.text}")
        assert [*sequence.target_ids] == target[:3]
        assert sequence.token_ids[1:-1] == source[:8]
        excess = max(0, len(target) - 3) + max(0, len(source) - 8)
        assert sequence.num_truncated == excess


def test_label_smoothing_replaces_the_recipes() -> None:
    model, data = random_model("transformer"), [(TASK, PAIRS, PAIRS[:2])]
    for label_smoothing, expected in ((None, 0.1), (0.3, 0.3), (0.0, 0.0)):
        config = FineTuningConfig.from_settings({**STILL, "label_smoothing": label_smoothing})
        lm_head = build_run(model, data, config).model.lm_head
        assert lm_head is not None
        assert lm_head.smoothing == expected


def test_label_smoothing_needs_the_whole_softmax() -> None:
    output = "output={kind: sampled, negatives: 8}"
    settings = {**STILL, "label_smoothing": 0.1}
    with pytest.raises(UserError, match=r"^label_smoothing: output: .* need the whole softmax"):
        finetune(random_model("bart", output), TASK, train=PAIRS[8:], dev=PAIRS[:8], **settings)
    classes = [Example(e.text, label=str(n % 2)) for n, e in enumerate(PAIRS)]
    task = Task("classes", OutputType.parse("class"))
    with pytest.raises(UserError, match=r"^label_smoothing is for outputs"):
        finetune(random_model("bert", output), task, train=classes, dev=classes[:4], **settings)


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        ("bert", {}, "generates text, and bert has no decoder"),
        ("bart", {"adaptation": "frozen"}, "^adaptation: .* trained in full"),
        ("bart", {"adaptation": "lora"}, "^adaptation: .* trained in full"),
        ("bart", {"perturbation": "freelb"}, "^perturbation: "),
        ("bart", {"head": "dense"}, "head.kind: output type text needs the decoder"),
    ],
)
def test_settings_without_a_meaning_are_refused(recipe, settings, message) -> None:
    model = toy_text_model([e.text for e in PAIRS], recipe=recipe)
    with pytest.raises(UserError, match=message):
        finetune(model, TASK, train=PAIRS[8:], dev=PAIRS[:8], epochs=0, **{**STILL, **settings})


def test_generation_settings_are_for_generated_outputs() -> None:
    model = toy_text_model([e.text for e in PAIRS])
    classes = [Example(e.text, label=str(n % 2)) for n, e in enumerate(PAIRS)]
    task = Task("classes", OutputType.parse("class"))
    settings = {"epochs": 0, **STILL}
    with pytest.raises(UserError, match=r"^label_smoothing is for outputs"):
        finetune(model, task, train=classes, dev=classes[:4], label_smoothing=0.1, **settings)
    classifier = finetune(model, task, train=classes[9:], dev=classes[:9], **settings).model
    with pytest.raises(UserError, match=r"^num_beams: task classes predicts output type class"):
        classifier.set_generation(num_beams=2)
    generator = finetune(random_model("t5"), TASK, train=PAIRS[8:], dev=PAIRS[:8], **settings).model
    with pytest.raises(UserError, match="beam search does not sample"):
        generator.set_generation(num_beams=2, top_k=3)
    with pytest.raises(UserError, match="a graph reads the outputs of a task head"):
        generator.require_task_head("a graph")


def test_tasks_share_a_decoder_beside_other_heads() -> None:
    classes = [Example(e.text, label=str(n % 2)) for n, e in enumerate(PAIRS)]
    in_words = answered_in_words(Task("words", OutputType.parse("class")))
    tasks = (TASK, in_words, Task("head", OutputType.parse("class")))
    data = [
        TaskData(task, train=examples[9:], dev=examples[:9])
        for task, examples in zip(tasks, (PAIRS, classes, classes), strict=True)
    ]
    result = finetune_tasks(random_model("bart"), data, epochs=0, **STILL)
    text, words, head = (model.task_model for model in result.best.models)
    assert text.decoder is not None
    assert words.decoder is not None
    for ours, others in zip(text.decoder.parameters(), words.decoder.parameters(), strict=True):
        assert torch.equal(ours, others)
    assert head.decoder is None
    values = {p.value for p in result.best.predictions[2]}
    assert values <= {"0", "1"}


@pytest.mark.parametrize("name", ["text-to-text", "titles"])
def test_laws_of_tasks_of_texts(name: str, tmp_path: Path) -> None:
    files = []
    for split, examples in (("train", PAIRS[:24]), ("dev", PAIRS[24:36])):
        columns, task = ("text", "label"), find_task(name)
        lines = ["\t".join(columns), *(f"{e.text}\t{e.label}" for e in examples)]
        if name == "titles":
            lines = [line for e in examples for line in (str(e.label), e.text, "more", "")]
        files.append(tmp_path / f"{split}{'.txt' if name == 'titles' else '.tsv'}")
        files[-1].write_text("\n".join(lines) + "\n")
    check_task(task, (files[0], files[1]), num_examples=12, recipe="bart")


def test_words_stand_for_classes_and_nothing_else_does() -> None:
    task = answered_in_words(find_task("sst-2"))
    model = toy_text_model(["positive negative 0 1 sst2 sentence: good bad film"], recipe="t5")
    decoder = task.output_type.build_decoder(task.labels)
    values = [decoder.value_of(text, model) for text in ("positive", "negative", "film", "1", "")]
    assert values[:2] == ["1", "0"]
    assert not {*values[2:]} & {*task.labels}
    examples = [Example("film", label=label) for label in ("1", "0", "1", "1", "0")]
    assert task.score(examples, [Prediction(v) for v in values]) == {"accuracy": 0.4}
    tokenizer = model.tokenizer
    (sequence,) = decoder.encode(encoder_of(model), [Example("good film", label="1")])
    assert sequence.token_ids[1:-1] == tokenizer.encode("sst2 sentence: good film")
    assert [*sequence.target_ids[:-1]] == tokenizer.encode("positive")


def encoder_of(model: TextModel) -> ExampleEncoder:
    return ExampleEncoder.from_recipe(model.model.recipe, model.tokenizer, 64)


def test_numbers_are_rounded_to_the_step_and_other_answers_rank_last() -> None:
    task = answered_in_words(find_task("sts-b"))
    output = task.output_type
    assert isinstance(output, NumberInWordsOutput)
    model = toy_text_model(["0 1 2 3 4 5 ."], recipe="t5")
    decoder = output.build_decoder(())
    numbers = {2.33: "2.4", 0.0: "0.0", 4.96: "5.0", 3.1: "3.2", 0.07: "0.0"}
    for number, text in numbers.items():
        assert decoder.target_text(Example("a", "b", number)) == text
    assert decoder.value_of("2.4", model) == 2.4
    assert decoder.value_of("two", model) == decoder.value_of("nan", model) == -1.0


@pytest.mark.parametrize("config", [WordPieceConfig, WordLevelConfig, ByteBpeConfig])
def test_a_number_is_read_as_every_tokenizer_spells_it(config: Any) -> None:
    texts = ["a film: -2.4 0.0 1.2 3.6 4.8 12.0"] * 5
    tokenizer = train_tokenizer(texts, config(vocab_size=300))
    model: Any = SimpleNamespace(tokenizer=tokenizer)
    decoder = NumberInWordsOutput(step=0.1).build_decoder(())
    assert isinstance(decoder, NumberInWordsDecoder)
    for number in (-2.4, 0.0, 1.2, 3.6, 4.8, 12.0):
        target = decoder.target_text(Example("a", label=number))
        text = tokenizer.decode(tokenizer.encode(str(target))).strip()
        assert decoder.value_of(text, model) == number
    assert decoder.value_of("1 2", model) == decoder.value_of("a film", model) == -1.0


def test_every_task_of_glue_is_answered_in_distinct_words() -> None:
    for name in ("cola", "sst-2", "mrpc", "sts-b", "qqp", "mnli", "qnli", "rte", "wnli"):
        task = find_task(name)
        in_words = answered_in_words(task)
        assert in_words.metrics == task.metrics
        assert in_words.labels == task.labels
        in_words.output_type.build_decoder(task.labels)
    for name in ("squad1", "ner", "rank"):
        with pytest.raises(UserError, match=f"--as-text: task {name} predicts"):
            answered_in_words(find_task(name))
    with pytest.raises(UserError, match="two labels have the word 'a'"):
        ClassInWordsOutput(words={"x": "a", "y": "a"}).build_decoder(("x", "y"))


def test_baselines_of_generated_outputs() -> None:
    copied = fit_baselines(TASK, PAIRS)
    assert [baseline.kind for baseline in copied] == ["copy"]
    (prediction,) = copied[0].predict([Example("five four three two")])
    assert prediction.value == "five four"
    order = RandomPermutation(len(PAIRS), 0)
    labelled = [replace(e, label=str(int(order(n) % 2))) for n, e in enumerate(PAIRS)]
    task = answered_in_words(Task("task", OutputType.parse("class"))).with_labels_from(labelled)
    assert [b.kind for b in fit_baselines(task, labelled)] == ["constant", "words-linear"]
