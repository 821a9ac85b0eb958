"""One shallow tagger for two languages; the second has little text."""

from bertwright.compression.distillation.fine_tuning_loss import teacher_outputs
from bertwright.compression.pruning.layers import prune_layers
from bertwright.tasks.data.task_data import TaskData
from bertwright.tasks.evaluation.evaluate import evaluate
from bertwright.tasks.finetuning.batching.encoded_task import EncodedTask
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Examples, TaggedSentence
from experiments.analyses.expecting import expect_above, expect_same
from experiments.compressions.check import CheckResults, CompressionCheck, MeasuredValue
from experiments.compressions.toy_models import SECOND_LANGUAGE, TASKS, ToyModels

LANGUAGES = {"first": "", "second": SECOND_LANGUAGE}


def run(toy: ToyModels) -> CheckResults:
    """Distil a tagger of four blocks into one of a single block, in both languages together."""
    yield from _outputs_per_word(toy)
    teacher, task, few = toy.fine_tuned("roles"), TASKS["roles"], toy.size.few_examples
    train = [*toy.examples("roles")[:few], *_second_language_examples(toy, few // 8)]
    unlabelled = [
        *toy.unlabelled("roles"),
        *toy.unlabelled("roles", SECOND_LANGUAGE)[: 10 * few // 8],
    ]
    dev = {name: toy.evaluation_examples("roles", code) for name, code in LANGUAGES.items()}
    data = TaskData(task, train=train, dev=[*dev["first"], *dev["second"]])
    student = prune_layers(toy.pretrained, [0])
    distilled: dict[str, list[float]] = {name: [] for name in LANGUAGES}
    baseline: dict[str, list[float]] = {name: [] for name in LANGUAGES}
    for seed in toy.seeds:
        distilled_model = toy.compress(
            teacher,
            "pre-trained-distillation",
            [seed],
            task_data=data,
            student=student,
            unlabelled=unlabelled,
        ).best.model
        settings = toy.settings(seed, epochs=2 * toy.size.epochs)
        baseline_model = finetune(student, task, train=data.train, dev=data.dev, **settings).model
        for name in LANGUAGES:
            distilled[name].append(evaluate(distilled_model, dev[name])["score"])
            baseline[name].append(evaluate(baseline_model, dev[name])["score"])
    for name, scores in distilled.items():
        teacher_score = evaluate(teacher, dev[name])["score"]
        metric = f"accuracy, {name} language"
        yield MeasuredValue(f"{metric}, teacher", [teacher_score])
        yield MeasuredValue(f"{metric}, distilled", scores, "labels only", baseline[name])
        ratios = [score / teacher_score for score in scores]
        yield MeasuredValue(f"{metric}, ratio to the teacher", ratios)


def _second_language_examples(toy: ToyModels, num_examples: int) -> Examples:
    return toy.examples("roles", language=SECOND_LANGUAGE)[:num_examples]


def _outputs_per_word(toy: ToyModels) -> CheckResults:
    """Check that a teacher has one output per word, also for words of several tokens."""
    teacher = toy.fine_tuned("roles")
    words, tags = ("zibblorka", "grendumba", "the"), teacher.task.labels
    examples = [TaggedSentence(words, (tags[0],) * 3), TaggedSentence(words[:2], (tags[0],) * 2)]
    part = EncodedTask.encode(teacher.task, examples, examples, teacher.example_encoder)
    num_outputs = sum(len(outputs) for outputs in teacher_outputs(teacher, part))
    yield expect_same("outputs of the teacher, for words", num_outputs, 5)
    yield expect_above(
        "tokens of the words", sum(len(s.token_ids) for s in part.sequences) - 4, 5.5
    )


CHECK = CompressionCheck(
    "C8",
    "tagging",
    "Is one tagger of a single block enough for two languages, and for the one with little text?",
    "Tsai et al. 2019",
    run,
)
