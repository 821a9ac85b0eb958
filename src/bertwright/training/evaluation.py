"""What a model knows of held-out text, by questions that are the same in every run.

The masked loss is asked with a plan of its own whatever the recipe trains with: 15 % of the tokens,
80 % of them masked, 10 % replaced, 10 % kept, drawn from a fixed key; rows are the recipe's. Beside
it stand two models that have not read: the *unigram entropy*, the mean of -ln((c + 1) / (N + V))
over the asked held-out pieces, where c is how often a piece stands among the N of the training
split and V the size of the vocabulary; and the accuracy of always naming the most frequent piece.
"""

import math
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.memory import Memory
from bertwright.errors import UserError
from bertwright.examples.assembly import Assembly, MixedRows, RowSource
from bertwright.examples.batches import Batch, make_batch
from bertwright.examples.corruption import Replace
from bertwright.examples.questions import Question
from bertwright.examples.selection import Tokens
from bertwright.examples.vocabulary import Vocabulary
from bertwright.model.model import Model, TensorBatch
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import Loss, Objective
from bertwright.objectives.turns import Turn, turns_of
from bertwright.randomness import Permutation, key
from bertwright.recipes import Recipe
from bertwright.schedules import Constant
from bertwright.text.histories import TEST
from bertwright.text.shards import Data
from bertwright.text.splitting import HELDOUT
from bertwright.training.bits_per_byte import hidden_words
from bertwright.training.ranking import USERS_AT_END, ranking
from bertwright.training.recipe_batches import asker, in_stretches
from bertwright.training.reporting import figure_name
from bertwright.training.retrieval import retrieval
from bertwright.training.row_sources import RowSources, split_of
from bertwright.training.stream_memory import StreamMemory

SEED = 0
"""Of the rows and masks of every evaluation."""

TOKENS_DURING, TOKENS_AT_END = 8_192, 65_536
"""Places of the rows that are read: during training, and afterwards."""

WORD_BYTES = 50_000
"""Bytes of the words of the documents that bits per byte are measured on."""

TOKENS_AT_ONCE = 4096

UNASKED = 1e-6
"""The number of questions where none was asked, so that it can divide."""


class Answering(Protocol):
    """A model as an evaluation asks it; ``remembers`` is how many places before a row."""

    @property
    def remembers(self) -> int: ...

    def losses(
        self,
        batch: TensorBatch,
        objectives: Mapping[str, Objective],
        noise: Noise | None = None,
        memory: Memory | None = None,
    ) -> dict[str, Loss]: ...


class Measured(NamedTuple):
    """Of a question: the sum of the losses, how many answers were right, and how many there were;
    of those by yes or no, how much each leans to yes, and whether that is right (K, 2)."""

    nats: float
    right: float
    asked: float
    leaning: NDArray[np.float64]


@dataclass(frozen=True)
class HeldOut:
    """The questions of one phase on held-out text; ``labels`` says of what each batch is, where
    that is told apart: of a language, say."""

    objectives: Mapping[str, Objective]
    batches: tuple[Batch, ...]
    labels: tuple[str, ...]
    known: Mapping[str, float]
    """What can be said of the masked question without reading."""
    idle: tuple[str, ...] = ()
    """Objectives that have no target in the text, and so no figures."""

    def figures(self, model: Answering, device: torch.device) -> dict[str, float]:
        """Loss and accuracy of each question; perplexity and what stands beside the masked one; the
        area under the curve of those by yes or no; the loss of each label."""
        by_label = {
            label: measure(model, self.objectives, self._labelled(label), device)
            for label in dict.fromkeys(self.labels)
        }
        found = {name: _summed(by_label.values(), name) for name in self.objectives}
        figures: dict[str, float] = {}
        for name, objective in self.objectives.items():
            if name in self.idle:
                continue
            nats, right, count, leaning = found[name]
            figures[f"{figure_name(name)}_loss"] = nats / count
            if isinstance(objective, Masked):
                figures["perplexity"] = math.exp(min(nats / count, 700.0))
            figures[f"{figure_name(name)}_accuracy"] = right / count
            if (area := _area_under_curve(leaning)) is not None:
                figures[f"{figure_name(name)}_auc"] = area
            for label, measured in by_label.items():
                own = measured[name]
                if label and own.asked > UNASKED:
                    figures[f"{figure_name(name)}_loss_{figure_name(label)}"] = own.nats / own.asked
        return {**figures, **self.known}

    def _labelled(self, label: str) -> list[Batch]:
        return [b for b, own in zip(self.batches, self.labels, strict=True) if own == label]


def _summed(measured: Iterable[Mapping[str, Measured]], name: str) -> Measured:
    nats, right, asked, leaning = zip(*(each[name] for each in measured), strict=True)
    return Measured(sum(nats), sum(right), sum(asked), np.concatenate(leaning))


def held_out(recipe: Recipe, phase: int, data: Data, num_tokens: int) -> HeldOut:
    """The questions of a phase on at least one row (of every language, where they are read apart)
    and about ``num_tokens`` places.

    Errors: UserError where the held-out split has too little text for one row, or no target for any
    objective.
    """
    assembly = recipe.assembly_of(phase)
    asked = recipe.objectives_of(phase)
    objectives = {name: _fixed(objective, assembly) for name, objective in asked.items()}
    sources = RowSources(recipe, data, HELDOUT, SEED)
    vocabulary = Vocabulary.of(data.tokenizer, data.piece_counts)
    batches: list[Batch] = []
    labels: list[str] = []
    groups = [group for turn in turns_of(objectives) for group in _undisturbed(turn)]
    for together in filter(None, groups):
        source = sources.of(phase, together)
        parts, of_parts = _parts(source, assembly, num_tokens)
        ask = {name: asker(o, SEED, vocabulary, 1.0) for name, o in together.items()}
        batches += (
            make_batch(
                source,
                part,
                np.zeros_like(part),
                ask,
                continues=assembly.in_order and number > 0,
                vocabulary=vocabulary,
            )
            for number, part in enumerate(parts)
        )
        labels += of_parts
    idle = tuple(name for name in objectives if not _has_targets(batches, name))
    if len(idle) == len(objectives):
        raise UserError(
            f"the held-out text of {data.path} has no target for objectives.{idle[0]}: prepare it "
            f"with a larger --heldout"
        )
    masked = masked_name(objectives)
    known = {} if masked in (None, *idle) else _without_reading(batches, masked, data)
    return HeldOut(objectives, tuple(batches), tuple(labels), known, idle)


def _has_targets(batches: Sequence[Batch], name: str) -> bool:
    questions = (batch.questions[name] for batch in batches if name in batch.questions)
    return any(question.weight.any() for question in questions)


def _undisturbed(turn: Turn) -> Iterator[Mapping[str, Objective]]:
    """The questions of a turn that are asked together, and each that would disturb them."""
    disturbing = {name: o for name, o in turn.objectives.items() if o.disturbs}
    yield {name: o for name, o in turn.objectives.items() if name not in disturbing}
    yield from ({name: objective} for name, objective in disturbing.items())


def _parts(
    source: RowSource, assembly: Assembly, num_tokens: int
) -> tuple[list[NDArray[np.int64]], Sequence[str]]:
    """About so many tokens of a source, in batches, and the label of each."""
    num_rows = min(source.num_rows, max(1, num_tokens // assembly.length))
    at_once = min(num_rows, max(1, TOKENS_AT_ONCE // assembly.length))
    if isinstance(source, MixedRows):
        return _of_each(source, num_rows, at_once)
    if assembly.in_order:
        step = np.arange(num_rows // at_once)[:, None]
        parts = list(step + in_stretches(source.num_rows, at_once) * np.arange(at_once))
    else:
        parts = _some_rows(source.num_rows, num_rows, at_once)
    return parts, ("",) * len(parts)


def _some_rows(of: int, num_rows: int, at_once: int) -> list[NDArray[np.int64]]:
    """Some of the rows of a source, in batches; the same ones in every run."""
    rows = Permutation(of, key(SEED, "held-out"))(np.arange(num_rows))
    return np.split(rows, range(at_once, num_rows, at_once))


def _of_each(
    source: MixedRows, num_rows: int, at_once: int
) -> tuple[list[NDArray[np.int64]], tuple[str, ...]]:
    """Some of the rows of every source, by their number, in batches of one label each."""
    parts: list[NDArray[np.int64]] = []
    labels: list[str] = []
    for first, label, own in zip(source.bounds[:-1], source.labels, source.sources, strict=True):
        wanted = max(1, round(num_rows * own.num_rows / source.num_rows))
        found = _some_rows(own.num_rows, min(wanted, own.num_rows), at_once)
        parts += [first + rows for rows in found]
        labels += [label] * len(found)
    return parts, tuple(labels)


def evaluate(
    model: Model, data: Data, recipe: Recipe | None = None, part: float = 1.0
) -> dict[str, float]:
    """Everything that is measured of a trained model: its last phase's questions on held-out text,
    bits per byte where it can name hidden pieces, retrieval where there are translations.

    ``recipe`` asks as another one does; ``part`` is how much of the text is read.
    """
    device, recipe = model.embedding.device, recipe or model.recipe
    last = len(recipe.phases) - 1
    questions = held_out(recipe, last, data, int(part * TOKENS_AT_END))
    return {
        **questions.figures(model, device),
        **bits_per_byte(model, recipe, data, int(part * WORD_BYTES)),
        **translations_found(model, data),
        **next_items(model, recipe, last, data),
        **{f"test_{n}": v for n, v in next_items(model, recipe, last, data, TEST).items()},
    }


def next_items(
    model: Model,
    recipe: Recipe,
    phase: int,
    data: Data,
    split: str = HELDOUT,
    most_users: int = USERS_AT_END,
) -> dict[str, float]:
    """Where the last items of histories are ranked; nothing where a phase does not read any."""
    if "histories" not in recipe.assembly_of(phase).needs:
        return {}
    with eagerly():
        return ranking(model, recipe.objectives_of(phase), data, split, most_users)


def translations_found(model: Model, data: Data) -> dict[str, float]:
    """How often held-out texts find their translations; see ``retrieval``."""
    with eagerly():
        split = split_of(model.recipe, data, HELDOUT)
        return retrieval(model, split, data.tokenizer.specials)


def bits_per_byte(
    model: Model, recipe: Recipe, data: Data, word_bytes: int = WORD_BYTES
) -> dict[str, float]:
    """``bits_per_byte`` and ``nats_per_hidden_word``, as a recipe asks at its end; nothing where it
    names no pieces of a text, or rows hold no words."""
    device, last = model.embedding.device, len(recipe.phases) - 1
    objectives, assembly = recipe.objectives_of(last), recipe.assembly_of(last)
    if "histories" in assembly.needs:
        return {}
    split, specials = split_of(recipe, data, HELDOUT), data.tokenizer.specials
    vocabulary = Vocabulary.of(data.tokenizer)
    opening, length = assembly.opening(specials), assembly.length
    nats, num_bytes, num_words = 0.0, 0, 0
    for hidden in hidden_words(split, specials, opening, length, word_bytes, vocabulary.reserved):
        batch = hidden.asked(objectives, vocabulary)
        if batch is None:
            return {}
        [name] = batch.questions
        nats += measure(model, {name: objectives[name]}, [batch], device)[name].nats
        num_bytes += hidden.num_bytes
        num_words += hidden.num_words
    if num_bytes == 0:
        return {}
    return {
        "bits_per_byte": nats / math.log(2) / num_bytes,
        "nats_per_hidden_word": nats / num_words,
    }


def masked_name(objectives: Mapping[str, Objective]) -> str | None:
    """The first objective that asks for hidden pieces."""
    return next((name for name, o in objectives.items() if isinstance(o, Masked)), None)


@torch.no_grad()
def measure(
    model: Answering,
    objectives: Mapping[str, Objective],
    batches: Sequence[Batch],
    device: torch.device,
) -> dict[str, Measured]:
    """What became of every question."""
    sums = {name: np.zeros(3) for name in objectives}
    leaning = {name: [np.empty((0, 2))] for name in objectives}
    stream = StreamMemory(model.remembers)
    with eagerly():
        for batch in batches:
            moved = TensorBatch(batch, device)
            with stream.within(moved) as memory:
                losses = model.losses(moved, objectives, memory=memory)
            for name, loss in losses.items():
                sums[name] += float(loss.sum), float(loss.correct), loss.count
                leaning[name].append(_leaning(loss, batch.questions[name]))
    return {
        name: Measured(
            float(s[0]), float(s[1]), max(float(s[2]), UNASKED), np.concatenate(leaning[name])
        )
        for name, s in sums.items()
    }


def _area_under_curve(leaning: NDArray[np.float64]) -> float | None:
    """Of the curve of the receiver, (K, 2); None where there is no yes, or no no, NaN where what
    was said is no number."""
    yes = leaning[:, 1] > 0
    if yes.all() or not yes.any():
        return None
    if not np.isfinite(leaning[:, 0]).all():
        return math.nan
    from sklearn.metrics import roc_auc_score  # which most trainings do without

    return float(roc_auc_score(yes, leaning[:, 0]))


def _leaning(loss: Loss, question: Question) -> NDArray[np.float64]:
    """(K, 2) of the questions that count, if they are answered by yes or no."""
    if loss.leaning is None:
        return np.empty((0, 2))
    both = torch.stack([own.float() for own in loss.leaning], dim=1).cpu().double().numpy()
    return both[question.weight > 0]


@contextmanager
def eagerly() -> Generator[None]:
    """Without compiled graphs: those of training do not fit, and others would not repay."""
    # To say so imports the compiler, which takes seconds: where nothing has, nothing is compiled.
    known = "torch._dynamo" in sys.modules
    with torch.compiler.set_stance("force_eager") if known else nullcontext():
        yield


def _fixed(objective: Objective, assembly: Assembly) -> Objective:
    """An objective as every evaluation asks it: of text as BERT does, of histories for what is
    behind a mask."""
    if not isinstance(objective, Masked):
        return objective
    selection = Tokens(rate=Constant(value=0.15))
    of_items = "histories" in assembly.needs
    corruption = Replace(mask=1.0, random=0.0, keep=0.0) if of_items else Replace()
    return objective.model_copy(update={"selection": selection, "corruption": corruption})


def _without_reading(batches: Sequence[Batch], name: str, data: Data) -> dict[str, float]:
    counts = data.piece_counts
    questions = [batch.questions[name] for batch in batches if name in batch.questions]
    target = np.concatenate([q.target[q.weight > 0] for q in questions])
    entropy = -np.log((counts[target] + 1) / (counts.sum() + len(counts))).mean()
    most_frequent = (target == counts.argmax()).mean()
    return {"unigram_entropy": float(entropy), "most_frequent_accuracy": float(most_frequent)}
