"""WordNet as retrieval: words from their glosses, and glosses from examples of their use."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

from bertwright.core.errors import UserError
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.data.readers.text_lines import parse_json_object, read_located_lines, require_key
from bertwright.retrieval.evaluation import JudgedQuery, RetrievalTask

SYNSETS_FILE = "synsets.jsonl.gz"
TEST_FRACTION = 10
"""One in this many synsets, by a hash of its id, gives queries; the others may train models."""


def load_synsets(folder: Path) -> list[dict[str, Any]]:
    """Return the synsets; UserError if the folder does not hold them."""
    file = folder / SYNSETS_FILE
    if not file.is_file():
        raise UserError(f"{folder} holds no {SYNSETS_FILE}: name the folder of WordNet with --data")
    return [_parse_synset(location, line) for location, line in read_located_lines(file)]


def _parse_synset(location: str, line: str) -> dict[str, Any]:
    synset = parse_json_object(location, line)
    for key, kind in (("id", str), ("gloss", str), ("words", list), ("examples", list)):
        require_key(location, synset, key, kind)
    return synset


def retrieval_tasks(synsets: Iterable[dict[str, Any]], num_queries: int) -> list[RetrievalTask]:
    """Return both tasks, each with a fixed sample of at most ``num_queries`` queries.

    The texts are all words, and all glosses. Where two synsets have the same gloss, each is
    relevant.
    """
    synsets = list(synsets)
    words = sorted({word for synset in synsets for word in synset["words"]})
    by_gloss: dict[str, set[str]] = {}
    for synset in synsets:
        by_gloss.setdefault(synset["gloss"], set()).update(synset["words"])
    glosses = {gloss: str(number) for number, gloss in enumerate(by_gloss)}
    by_example: dict[str, set[str]] = {}
    for synset in synsets:
        for example in synset["examples"]:
            by_example.setdefault(example, set()).add(glosses[synset["gloss"]])
    held_out = [synset for synset in synsets if is_held_out(synset)]
    test_glosses = {synset["gloss"] for synset in held_out}
    test_examples = {example for synset in held_out for example in synset["examples"]}
    return [
        RetrievalTask(
            "words from glosses",
            [IdentifiedText(word, word) for word in words],
            _sample({gloss: by_gloss[gloss] for gloss in test_glosses}, num_queries),
        ),
        RetrievalTask(
            "glosses from examples",
            [IdentifiedText(number, gloss) for gloss, number in glosses.items()],
            _sample({example: by_example[example] for example in test_examples}, num_queries),
        ),
    ]


def training_pairs(synsets: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield queries with relevant texts of all other synsets, to train models for both tasks."""
    for synset in synsets:
        if not is_held_out(synset):
            yield from ((synset["gloss"], word) for word in synset["words"])
            yield from ((example, synset["gloss"]) for example in synset["examples"])


def is_held_out(synset: dict[str, Any]) -> bool:
    """Return whether a synset gives queries."""
    return crc32(synset["id"].encode()) % TEST_FRACTION == 0


def _sample(relevant: dict[str, set[str]], num_queries: int) -> list[JudgedQuery]:
    """Return the queries whose hashes are smallest."""
    ordered = sorted(relevant, key=lambda text: (crc32(text.encode()), text))
    return [JudgedQuery(text, frozenset(relevant[text])) for text in ordered[:num_queries]]
