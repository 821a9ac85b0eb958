"""A loaded model behind its queue, and which of several models a request is for."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch

from bertwright.axes import did_you_mean, quoted
from bertwright.errors import UserError
from bertwright.interop.onnx.reading import OnnxModel
from bertwright.model.text_model import Guess, TextModel, Vectors
from bertwright.serving.batching import Batcher
from bertwright.serving.company import Company
from bertwright.serving.metrics import Metrics
from bertwright.serving.refusals import Refusal
from bertwright.serving.settings import Settings
from bertwright.tasks.answers import (
    Answer,
    ClassAnswer,
    ClosenessAnswer,
    Floats,
    LabelsAnswer,
    NumberAnswer,
    RelevanceAnswer,
    SpanAnswer,
    TagAnswer,
)
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned


@dataclass(frozen=True)
class Ability:
    """What a model can be asked for: which models can, in words, and whether one is such."""

    needs: str
    has: Callable[[TextModel], bool]


def _answers(*kinds: type[Answer]) -> Callable[[TextModel], bool]:
    return lambda model: isinstance(model, FineTuned) and isinstance(model.task.answer, kinds)


def _opens(model: TextModel) -> bool:
    """Whether there is something inside to look at, which a graph does not show."""
    return not isinstance(model, OnnxModel) and len(model.model.encoder.blocks) > 0


ABILITIES = {
    "embed": Ability("any model", lambda model: True),
    "explore": Ability("a model with blocks, and with their weights", _opens),
    "fill-mask": Ability("a model that names hidden pieces", lambda model: model.fills_places),
    "predict": Ability(
        "a model that is fine-tuned for classes, labels, a number or pairs",
        _answers(ClassAnswer, LabelsAnswer, NumberAnswer, ClosenessAnswer, RelevanceAnswer),
    ),
    "rerank": Ability("a cross-encoder, fine-tuned with --task rank", _answers(RelevanceAnswer)),
    "tag": Ability("a model that is fine-tuned for tags", _answers(TagAnswer)),
    "answer": Ability("a model that is fine-tuned for questions", _answers(SpanAnswer)),
}


class Served:
    """A model by its name, its queue, and what the threads behind that compute."""

    def __init__(self, name: str, model: TextModel, settings: Settings, metrics: Metrics) -> None:
        self.name, self.model = name, model
        self._company = Company()
        num_threads, begin = _threads(model)
        # In a thread like those that compute: what is compiled depends on its share of the cores.
        with ThreadPoolExecutor(1, initializer=begin) as thread:
            thread.submit(self._warm_up).result()
        self.batcher = Batcher(
            model.token_budget,
            settings.queue_tokens,
            settings.deadline_ms / 1000,
            metrics.note_of(name),
            num_threads,
            begin,
        )
        metrics.watch(name, lambda: self.batcher.waiting_tokens)

    def _warm_up(self) -> None:
        """Make what vectors need at first, before anybody waits for it: for one row, for several,
        and for such as are filled up."""
        special = self.model.tokenizer.specials
        short = [special.start, special.end]
        for rows in ([short], [short, short], [short, [*short, special.end]]):
            self.vectors(rows)

    @property
    def abilities(self) -> list[str]:
        """What it can be asked for."""
        return [name for name, ability in ABILITIES.items() if ability.has(self.model)]

    @property
    def longest(self) -> int | None:
        """Pieces of a text that its vector is made of; None for all."""
        near = _near(self.model)
        return self.model.longest if near is None else near.maker.length

    def vectors(self, rows: Sequence[list[int]]) -> list[Vectors]:
        """The vector (D,) of every row: what a model was trained to bring texts together by, else
        what ``embed`` makes of it."""
        near = _near(self.model)
        with self._company.together():
            if near is None:
                return list(self.model.embed_rows(rows))
            return [said[0] for said in near.outputs(_alone(rows, near.maker.segmented))]

    def outputs(self, rows: Sequence[TaskRow]) -> list[Floats]:
        """What the head of a fine-tuned model says of rows."""
        assert isinstance(self.model, FineTuned)
        with self._company.together():
            return self.model.outputs(rows)

    def guesses(self, rows: Sequence[tuple[list[int], int]]) -> list[list[list[Guess]]]:
        """The likeliest pieces of the hidden places of rows, as many as stand beside each."""
        with self._company.together():
            return [self.model.fill_row(row, top_k) for row, top_k in rows]

    def alone(self) -> AbstractContextManager[None]:
        """As long as it is open no other thread computes anything with the model."""
        return self._company.alone()


def _threads(model: TextModel) -> tuple[int, Callable[[], None]]:
    """How many compute batches of a model, and what each begins with.

    On a CPU each core computes a batch of its own: where the requests of others take a core for a
    moment, threads that share a batch wait for one another at every step of it.
    """
    if model.device.type != "cpu" or isinstance(model, OnnxModel):
        return 1, lambda: None
    return torch.get_num_threads(), partial(torch.set_num_threads, 1)


def _near(model: TextModel) -> FineTuned | None:
    """A model that was trained to bring texts together; None of any other."""
    if isinstance(model, FineTuned) and isinstance(model.task.answer, ClosenessAnswer):
        return model
    return None


def _alone(rows: Sequence[list[int]], segmented: bool) -> list[TaskRow]:
    """Rows of one text each, as a head takes them."""
    return [
        TaskRow(row, number, [0] * len(row) if segmented else None)
        for number, row in enumerate(rows)
    ]


class Models:
    """The models of a server by name; the first one that can answers who names none."""

    def __init__(
        self, models: Mapping[str, TextModel], settings: Settings, metrics: Metrics
    ) -> None:
        if not models:
            raise UserError("nothing to serve: name a model folder")
        serve = partial(Served, settings=settings, metrics=metrics)
        self.all = {name: serve(name, model) for name, model in models.items()}

    def find(self, name: str | None, wanted: str) -> Served:
        """The model of that name that can be asked for what is wanted.

        Errors: Refusal where there is none.
        """
        ability = ABILITIES[wanted]
        named = None if name is None else self.named(name)
        can = [served for served in self.all.values() if ability.has(served.model)]
        if named in can:
            return named
        if named is not None:
            names = ", ".join(each.name for each in can) or "another server"
            raise Refusal(400, f"{wanted} needs {ability.needs}, which {name} is not: ask {names}")
        if not can:
            raise Refusal(404, f"no model here can do that: {wanted} needs {ability.needs}")
        return can[0]

    def named(self, name: str) -> Served:
        """The model of that name; Refusal where there is none."""
        if name not in self.all:
            raise Refusal(404, f"there is no model {quoted(name)}{did_you_mean(name, self.all)}")
        return self.all[name]

    def close(self) -> None:
        """Let all queues end."""
        for served in self.all.values():
            served.batcher.close()
