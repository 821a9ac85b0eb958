"""Small data sets in the layout of a suite, a suite of every kind of task, and small models."""

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bertwright.models.text_model import TextModel
from bertwright.suites.suite import EvaluationSuite
from bertwright.testing.toy import toy_text_model
from small_tasks import TEXTS, tagged

SUITE: dict[str, Any] = {
    "about": "A suite of every kind.",
    "tasks": {
        "grammar": {
            "kind": "minimal-pairs",
            "ability": "Sentences",
            "file": "grammar.jsonl",
            "pairs_per_paradigm": 2,
        },
        "articles": {
            "kind": "pair-templates",
            "ability": "Sentences",
            "parts": {
                "true": {
                    "file": "kinds.tsv",
                    "good": "{context} {kind}.",
                    "bad": "{context} {other}.",
                }
            },
        },
        "facts": {"kind": "facts", "ability": "Sentences", "file": "facts.jsonl.gz"},
        "likeness": {
            "kind": "similarity",
            "ability": "Vectors",
            "task": "sts-b",
            "folder": "likeness",
        },
        "glosses": {
            "kind": "wordnet",
            "ability": "Vectors",
            "folder": "wordnet",
            "direction": "words from glosses",
            "max_texts": 60,
        },
        "search": {
            "kind": "retrieval",
            "ability": "Vectors",
            "texts": "texts.jsonl",
            "queries": "queries.jsonl",
        },
        "noise": {"kind": "probe", "task": "sst-2", "folder": "noise", "train_examples": 120},
        "paraphrase": {
            "kind": "probe",
            "columns": {"text": "sentence1", "pair": "sentence2"},
            "folder": "pairs",
        },
        "names": {"kind": "fine-tuning", "task": "iob2", "folder": "names"},
    },
    "word_vectors": {
        "text": ["text.txt"],
        "overrides": [
            "encoder.width=8",
            "steps=2",
            "batch_tokens=128",
            "assembly.length=32",
            "text.tokenizer.vocab_size=64",
            "objectives.skip-gram.subsampling=0",
            "precision=float32",
        ],
    },
}


def write_lines(file: Path, rows: list[Any]) -> None:
    """Write JSON lines, gzipped if the name says so."""
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())


def write_table(file: Path, *rows: tuple[Any, ...]) -> None:
    """Write a table with tabs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all data sets."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    write_lines(
        folder / "grammar.jsonl",
        [
            {"sentence_good": f"the {n} birds are", "sentence_bad": f"the {n} birds is", "UID": uid}
            for uid in ("number", "order", "case")
            for n in range(3)
        ],
    )
    write_table(
        folder / "kinds.tsv",
        ("context", "kind", "other"),
        ("A robin is (a|an)", "animal", "tree"),
        ("An oak is (a|an)", "tree", "animal"),
    )
    write_lines(
        folder / "facts.jsonl.gz",
        [
            {
                "masked_sentences": [f"The {n} river is [MASK]."],
                "obj_label": label,
                "relation": "P1",
            }
            for n, label in enumerate(("red", "green", "blue", "red"))
        ],
    )
    likeness = rng.uniform(0, 5, len(TEXTS))
    write_table(
        folder / "likeness" / "dev.tsv",
        ("sentence1", "sentence2", "score"),
        *(
            (text, TEXTS[(7 * n + 3) % len(TEXTS)], f"{s:.2f}")
            for n, (text, s) in enumerate(zip(TEXTS, likeness, strict=True))
        ),
    )
    # Words of known letters: unknown words would have equal vectors, and rounding would rank them.
    words = ["".join(letters) for letters in product("abdeilnor", repeat=3)]
    synsets = [
        {"id": f"n{n:04d}", "words": [words[n]], "gloss": text + f" {n}", "examples": []}
        for n, text in enumerate(TEXTS * 4)
    ]
    write_lines(folder / "wordnet" / "synsets.jsonl.gz", synsets)
    texts = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)]
    write_lines(folder / "texts.jsonl", texts)
    write_lines(
        folder / "queries.jsonl",
        [{"text": text[4:14], "relevant": [str(n)]} for n, text in enumerate(TEXTS[:20])],
    )
    for split, size in (("train", 200), ("dev", 300)):
        labels = rng.integers(0, 2, size)
        rows = [
            (f"{TEXTS[n % len(TEXTS)]} {rng.integers(10**6)}", label)
            for n, label in enumerate(labels)
        ]
        write_table(folder / "noise" / f"{split}.tsv", ("sentence", "label"), *rows)
        pairs = [
            (
                n,
                text,
                text if n % 2 else TEXTS[(n + 7) % len(TEXTS)],
                ("not_entailment", "entailment")[n % 2],
            )
            for n, text in enumerate(TEXTS)
        ]
        write_table(
            folder / "pairs" / f"{split}.tsv", ("index", "sentence1", "sentence2", "label"), *pairs
        )
        (folder / "names").mkdir(exist_ok=True)
        sentences = (
            "".join(
                f"{n}\t{w}\t{t}\t-\t-\n"
                for n, (w, t) in enumerate(zip(s.words, s.tags or (), strict=True), 1)
            )
            for s in tagged()
        )
        (folder / "names" / f"{split}.iob2").write_text("\n".join(sentences) + "\n")
    (folder / "text.txt").write_text("\n\n".join(TEXTS) + "\n")
    return folder


@pytest.fixture(scope="session")
def suite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of the suite."""
    file = tmp_path_factory.mktemp("suite") / "every-kind.yaml"
    file.write_text(yaml.safe_dump(SUITE, sort_keys=False))
    return file


@pytest.fixture(scope="session")
def suite(suite_file: Path) -> EvaluationSuite:
    """The suite of every kind of task."""
    return EvaluationSuite.load(suite_file)


@pytest.fixture(scope="session")
def model() -> TextModel:
    """A small masked language model without training."""
    return toy_text_model(TEXTS)
