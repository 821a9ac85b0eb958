"""One shallow tagger for two languages, of one of which there is little."""

from bertwright.analysis.planted.expecting import above, same
from bertwright.compression.distillation import taught_outputs
from bertwright.compression.students import shortened
from bertwright.studies.compression_checks.ground import SECOND, TASKS, Ground
from bertwright.studies.compression_checks.row import Came, Measured, Row
from bertwright.tasks.data import TaskData
from bertwright.tasks.evaluation import evaluate
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Examples, TaggedWords
from bertwright.tasks.parts import Part

LANGUAGES = {"first": "", "second": SECOND}


def run(ground: Ground) -> Came:
    """A tagger of four blocks teaches one of a single block, in both languages together."""
    yield from _by_words(ground)
    teacher, task, few = ground.tuned("roles"), TASKS["roles"], ground.size.few
    train = [*ground.examples("roles")[:few], *_of_second(ground, few // 8)]
    others = [*ground.unlabelled("roles"), *ground.unlabelled("roles", SECOND)[: 10 * few // 8]]
    dev = {name: ground.judge("roles", code) for name, code in LANGUAGES.items()}
    given = TaskData(task, train=train, dev=[*dev["first"], *dev["second"]])
    student = shortened(ground.pretrained, [0])
    taught: dict[str, list[float]] = {name: [] for name in LANGUAGES}
    alone: dict[str, list[float]] = {name: [] for name in LANGUAGES}
    for seed in ground.seeds:
        by_teacher = ground.compressed(
            teacher,
            "pre-trained-distillation",
            [seed],
            given=given,
            student=student,
            transfer=others,
        ).best.model
        as_long = ground.settings(seed, epochs=2 * ground.size.epochs)
        by_labels = finetune(student, task, train=given.train, dev=given.dev, **as_long).model
        for name in LANGUAGES:
            taught[name].append(evaluate(by_teacher, dev[name])["score"])
            alone[name].append(evaluate(by_labels, dev[name])["score"])
    for name, scores in taught.items():
        whole = evaluate(teacher, dev[name])["score"]
        what = f"accuracy, {name} language"
        yield Measured(f"{what}, teacher", [whole])
        yield Measured(f"{what}, taught", scores, "labels alone", alone[name])
        yield Measured(f"{what}, kept of the teacher", [score / whole for score in scores])


def _of_second(ground: Ground, number: int) -> Examples:
    return ground.examples("roles", language=SECOND)[:number]


def _by_words(ground: Ground) -> Came:
    """A teacher speaks of words, of which each may be several pieces."""
    teacher = ground.tuned("roles")
    words, tags = ("zibblorka", "grendumba", "the"), teacher.task.labels
    examples = [TaggedWords(words, (tags[0],) * 3), TaggedWords(words[:2], (tags[0],) * 2)]
    part = Part.of(teacher.task, examples, examples, teacher.maker)
    spoken = sum(len(each) for each in taught_outputs(teacher, part))
    yield same("places at which the teacher is heard, for words", spoken, 5)
    yield above("pieces that the words have", sum(len(r.pieces) for r in part.rows) - 4, 5.5)


ROW = Row(
    "C8",
    "tagging",
    "Does one tagger of a single block do for two languages, and for the one with little text?",
    "Tsai et al. 2019",
    run,
)
