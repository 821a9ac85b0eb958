"""How fast attention is looked at while texts are read, and what memory that takes, against reading
the same texts with explicit attention and looking at nothing."""

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertwright.analysis.analysis import Case, Listening
from bertwright.analysis.listening import PLACES_AT_ONCE, heard_batches
from bertwright.analysis.running import chosen
from bertwright.analysis.subject import Subject
from bertwright.analysis.texts import ReadText, read_texts
from bertwright.machine.process import tune_process
from bertwright.model.model import Model
from bertwright.model.reading import read_batches
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.formats.examples import Example
from bertwright.text.tokenizers import WordsChoice
from bertwright.text.vocabularies import train_tokenizer

GROUP, SITES = "attention", ("blocks.*.attention.weights",)

LENGTH, WORDS = 128, 1000
"""Places of every text, and how many words it is drawn from."""

COLUMNS = {
    "model": "model",
    "texts": "texts",
    "analyses": "analyses that listen",
    "texts_per_second": "texts a second",
    "of_reading": "times the speed of reading alone",
    "mebibytes": "MiB above the model",
}
"""What a document shows, by key."""

Say = Callable[[str], None]


def compare(name: str, number: int, rounds: int, say: Say) -> dict[str, Any]:
    """Read ``number`` texts a part after the other, as many as there are rounds, each both ways."""
    tune_process()
    subject = _subject(name)
    case = Case(subject, _texts(subject, number))
    listeners = [own.listener(case) for own in chosen([GROUP]) if isinstance(own, Listening)]
    _read(subject, case.texts[:1])
    before = _resident_bytes()
    reading: list[float] = []
    listening: list[float] = []
    for turn in np.array_split(np.arange(number), rounds):
        texts = [case.texts[n] for n in turn]
        began = time.perf_counter()
        _read(subject, texts)
        between = time.perf_counter()
        for heard in heard_batches(subject, texts, SITES):
            told = replace(heard, numbers=[int(turn[n]) for n in heard.numbers])
            for listener in listeners:
                listener.hear(told)
        reading.append(between - began)
        listening.append(time.perf_counter() - between)
        say(f"{len(texts)} texts: read in {reading[-1]:.1f} s, heard in {listening[-1]:.1f} s")
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "model": name,
        "texts": number,
        "analyses": len(listeners),
        "texts_per_second": number / sum(listening),
        "of_reading": sum(reading) / sum(listening),
        "mebibytes": (highest - before) / 2**20,
    }


def _subject(name: str) -> Subject:
    recipe = Recipe.load(name, "encoder.mixer.kernel=explicit")
    tokenizer = train_tokenizer([" ".join(_words())] * 2, WordsChoice(size=WORDS + 5))
    model = Model.build(recipe, tokenizer.size, tokenizer).eval()
    return Subject(name, TextModel(model, tokenizer, "float32"))


def _words() -> list[str]:
    return [f"word{number}" for number in range(WORDS)]


def _texts(subject: Subject, number: int) -> list[ReadText]:
    words = np.random.default_rng(0).choice(_words(), (number, LENGTH - 2))
    return read_texts(subject, [Example(" ".join(own)) for own in words], LENGTH)


@torch.no_grad()
def _read(subject: Subject, texts: Sequence[ReadText]) -> None:
    padding, rows = subject.tokenizer.specials.pad, [text.pieces for text in texts]
    device = subject.text_model.device
    for batch in read_batches(rows, padding, device, None, PLACES_AT_ONCE):
        subject.encoder(batch.pieces, batch.coordinates)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()
