"""What a user should know of a training before its score is believed, a sentence each."""

from collections.abc import Iterator, Sequence

from bertwright.tasks.answers.answer import told
from bertwright.tasks.formats.examples import Examples
from bertwright.tasks.parts import Part
from bertwright.tasks.splitting import lacking
from bertwright.tasks.task import Task
from bertwright.tasks.task_training import Training


def run_warnings(training: Training) -> list[str]:
    """Return what limits the score of any of the tasks: texts that are truncated, answers that no
    token stands for, labels that one of the parts lacks, judged examples that were trained on."""
    return [
        sentence
        for number, part in enumerate(training.parts)
        for sentence in (
            *_truncated(training, number, part),
            *_unplaced(part),
            *missing_labels(part.task, part.train, part.dev),
            *_one_answer(part),
            *_seen(part),
        )
    ]


def missing_labels(
    task: Task, train: Examples, dev: Examples, part: str = "the held-out part"
) -> Iterator[str]:
    """Say which labels of the training examples do not judge, and which that judge are not taught;
    ``part`` is what judges."""
    for of, beside, where, then in (
        (train, dev, f"{part} has no example", "its score says nothing of them"),
        (dev, train, "no training example is", "they are never right"),
    ):
        if labels := lacking(task, of, beside):
            some = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
            yield (
                f"task {task.name}: {where} of {len(labels)} of {len(task.labels)} labels "
                f"({some}): {then}: give more examples of each"
            )


def _one_answer(part: Part) -> Iterator[str]:
    answer = part.task.answer
    settles = answer.calibrated or getattr(answer, "unanswerable", False)
    if settles and not answer.is_varied(part.dev):
        yield (
            f"task {part.task.name}: all {len(part.dev):,} held-out examples have one answer: the "
            f"score says little, and neither a temperature nor a threshold is fitted to them"
        )


def _truncated(training: Training, number: int, part: Part) -> Iterator[str]:
    if cut := part.cut():
        apart = training.net.head(number).choice.read == "apart"
        lacks_stride = part.task.answer.lacks_stride and not apart
        windows = ", or read the whole in windows with answer.stride" if lacks_stride else ""
        yield (
            f"{told(part.train[cut[0]])}: {_are(cut, 'training example')} longer than a row of "
            f"{training.length} pieces and cut, this one first: raise length{windows}"
        )


def _unplaced(part: Part) -> Iterator[str]:
    if part.unplaced:
        yield (
            f"{told(part.train[part.unplaced[0]])}: {_are(part.unplaced, 'training example')} left "
            f"out, this one first: no token stands for the answer, or no window holds all of it"
        )


def _seen(part: Part) -> Iterator[str]:
    if seen := part.seen:
        yield (
            f"{told(part.dev[seen[0]])}: {len(seen):,} of {len(part.dev):,} examples that judge "
            f"stand among those that are learned from, this one first: the score says less of new "
            f"texts"
        )


def _are(numbers: Sequence[int], what: str) -> str:
    return f"1 {what} is" if len(numbers) == 1 else f"{len(numbers):,} {what}s are"
