"""What a user should know of a training before its score is believed, a sentence each."""

from collections.abc import Iterator, Sequence

from bertwright.tasks.answers.answer import told
from bertwright.tasks.parts import Part
from bertwright.tasks.task_training import Training


def remarks(training: Training) -> list[str]:
    """Return what limits the score of any of the tasks: texts that are truncated, answers that no
    token stands for, judged examples that were trained on."""
    return [
        sentence
        for number, part in enumerate(training.parts)
        for sentence in (
            *_truncated(training, number, part),
            *_unplaced(part),
            *_seen(part),
        )
    ]


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
