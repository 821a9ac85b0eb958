"""Mined negatives: never positives, never closer than allowed, in bounded memory."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from bertwright.core.errors import UserError
from bertwright.retrieval.generated_queries import generate_queries
from bertwright.retrieval.mining import (
    QUERIES_AT_ONCE,
    KnownPositives,
    MiningConfig,
    PositivePair,
    mine_negatives,
)
from bertwright.retrieval.search_index import SearchIndex
from bertwright.tasks.catalogue import find_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.testing.toy import toy_text_model
from retrieval_encoders import EncoderModel, WordEncoder

TEXTS = [f"{a} {b} {c}" for a in ("old", "red", "big") for b in ("bird", "tree") for c in "xyz"]
PAIRS = [
    PositivePair("old bird", "old bird x"),
    PositivePair("old bird", "old bird y"),
    PositivePair("red tree x", "red tree x"),
    PositivePair("big", "big tree z"),
    PositivePair("old", "a text that is not in the index"),
]


class WordOverlap:
    """A cross-encoder whose logit is the number of common words, minus one."""

    def logits(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        return np.array([len({*q.split()} & {*t.split()}) - 1.0 for q, t in pairs])


@pytest.fixture(scope="module", params=["dense", "bm25", "hybrid"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    model = None if request.param == "bm25" else EncoderModel(WordEncoder("dense"))
    folder = tmp_path_factory.mktemp("index") / "index"
    return SearchIndex.build(TEXTS, folder, model, kind=request.param, vector_type="float32")


@pytest.mark.parametrize(
    "config",
    [
        MiningConfig(num_negatives=20, max_ratio=0.9),
        MiningConfig(num_negatives=20, max_ratio=None, margin=0.001),
        MiningConfig(num_negatives=20, max_ratio=None),
    ],
)
def test_negatives_are_no_positives_and_keep_their_distance(
    index: SearchIndex, config: MiningConfig
) -> None:
    mined = list(mine_negatives(index, lambda: PAIRS, config))
    assert len(mined) == len(PAIRS)
    assert any(mined)
    for pair, negatives in zip(PAIRS, mined, strict=True):
        (hits,) = index.search([pair.query], 100)
        scores = {hit.content: hit.score for hit in hits}
        allowed = {t for q, t in PAIRS if q == pair.query} | {pair.query}
        limit = np.inf if not config.is_filtered else -np.inf
        if pair.text in scores and config.max_ratio is not None:
            limit = config.max_ratio * scores[pair.text]
        elif pair.text in scores and config.margin is not None:
            limit = scores[pair.text] - config.margin
        expected = {t for t, score in scores.items() if score <= limit and t not in allowed}
        assert {n.negative for n in negatives} == expected
        negative_scores = [scores[n.negative] for n in negatives]
        assert negative_scores == sorted(negative_scores, reverse=True)


def test_a_cross_encoder_scores_texts_and_margins(index: SearchIndex) -> None:
    config = MiningConfig(num_negatives=20, max_ratio=None, margin=0.1)
    mined = list(mine_negatives(index, lambda: PAIRS, config, WordOverlap()))  # type: ignore[arg-type]
    lines = [negative for negatives in mined for negative in negatives]
    assert lines
    for line in lines:
        first, second = WordOverlap().logits(
            [(line.query, line.positive), (line.query, line.negative)]
        )
        assert line.margin == first - second > 0
        probabilities = 1 / (1 + np.exp(-np.array([first, second])))
        assert probabilities[0] - probabilities[1] >= 0.1
    assert not mined[-1]  # its positive text has no common word with the query


def test_a_ratio_of_a_negative_score_is_below_it() -> None:
    config = MiningConfig(max_ratio=0.9)
    assert config.max_score(2.0) == pytest.approx(1.8)
    assert config.max_score(-2.0) == pytest.approx(-2.2)


def test_pairs_are_streamed(index: SearchIndex) -> None:
    """Only the pairs of a few calls are read ahead, and eight bytes are kept for each."""
    num_read = 0

    def read_pairs() -> Iterator[PositivePair]:
        nonlocal num_read
        num_read = 0
        for number in range(3 * QUERIES_AT_ONCE):
            num_read += 1
            yield PositivePair(f"bird {number}", "old bird x")

    mined = mine_negatives(index, read_pairs, MiningConfig(depth=2, max_ratio=None))
    next(mined)
    assert num_read == QUERIES_AT_ONCE
    known = KnownPositives(read_pairs())
    assert known._hashes.nbytes == 8 * 3 * QUERIES_AT_ONCE
    assert PositivePair("bird 7", "old bird x") in known
    assert PositivePair("bird 7", "old bird y") not in known


def test_a_student_of_the_vectors_encodes_queries(tmp_path: Path) -> None:
    teacher = EncoderModel(WordEncoder("dense"))
    SearchIndex.build(TEXTS, tmp_path / "index", teacher, vector_type="float32")

    class Student(WordEncoder):
        def encode_queries(self, texts: Sequence[str]) -> np.ndarray:
            vectors = super().encode_queries(texts)
            return vectors + 0.5 * np.roll(vectors, 1, axis=1)

    student = EncoderModel(Student("dense"))
    with pytest.raises(UserError, match="made by another model"):
        SearchIndex.open(tmp_path / "index", student)
    index = SearchIndex.open(tmp_path / "index", query_model=student)
    assert [hits[0].text for hits in index.search(TEXTS, 1)] == TEXTS
    with pytest.raises(UserError, match="the query model gives the first text"):
        SearchIndex.open(tmp_path / "index", query_model=EncoderModel(WordEncoder("dense", seed=1)))


def test_queries_are_generated_for_the_texts_of_an_index(tmp_path: Path) -> None:
    examples = [Example(text, label=text.split()[0]) for text in TEXTS]
    model = toy_text_model(TEXTS, recipe="bart")
    task = find_task("text-to-text")
    settings = {"train": examples, "dev": examples, "epochs": 0, "max_length": 32}
    trained = finetune(model, task, output=tmp_path / "generator", **settings).model
    index = SearchIndex.build(TEXTS, tmp_path / "index", kind="bm25", segment_texts=5)
    queries = [str(prediction.value).strip() for prediction in trained.predict(TEXTS)]
    expected = zip(queries, TEXTS, strict=True)
    pairs = list(generate_queries(index, tmp_path / "generator"))
    assert pairs == [pair for pair in expected if pair[0]]
    model.save(tmp_path / "encoder")
    with pytest.raises(UserError, match="generates no queries"):
        next(generate_queries(index, tmp_path / "encoder"))
