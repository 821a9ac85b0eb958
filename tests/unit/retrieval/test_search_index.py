"""Search indexes: the same answers however the texts arrive, and nothing lost on the way."""

import shutil
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.data.readers.identified_texts import IdentifiedText
from bertwright.retrieval.bm25 import Bm25Index, terms
from bertwright.retrieval.manifest import PROBE_FILE, read_manifest
from bertwright.retrieval.rankings import fuse_rankings
from bertwright.retrieval.search_index import SearchIndex
from bertwright.retrieval.writing import IndexWriter
from retrieval_encoders import EncoderModel, WordEncoder

WORDS = [
    "apple",
    "bear",
    "cedar",
    "drum",
    "eagle",
    "flute",
    "grape",
    "house",
    "ice",
    "jar",
    "kettle",
    "lemon",
]
TEXTS = [
    f"{WORDS[n % 12]} {WORDS[(n * n + 3) % 12]} {WORDS[(7 * n) % 11]} number{n}" for n in range(40)
]
QUERIES = ["bear drum", "number17 number17 lemon", "ice number3"]
MODEL_KINDS = ("dense", "sparse", "late-interaction")
KINDS = (*MODEL_KINDS, "bm25", "hybrid")


def model_for(kind: str, **settings: object) -> EncoderModel | None:
    if kind == "bm25":
        return None
    return EncoderModel(WordEncoder(kind if kind in MODEL_KINDS else "dense", **settings))


def build(folder: Path, kind: str, **settings: object) -> SearchIndex:
    options = {"kind": kind, "vector_type": "float32", "segment_texts": 12, **settings}
    return SearchIndex.build(TEXTS, folder, model_for(kind), **options)


def content(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_answers_do_not_depend_on_segments_nor_on_reopening(tmp_path: Path, kind: str) -> None:
    answers = [
        build(tmp_path / str(size), kind, segment_texts=size).search(QUERIES, 5)
        for size in (12, 1000)
    ]
    reopened = SearchIndex.open(tmp_path / "12", model_for(kind))
    assert len(reopened) == len(TEXTS)
    answers.append(reopened.search(QUERIES, 5))
    for others in answers[1:]:
        for first, second in zip(answers[0], others, strict=True):
            assert [hit.id for hit in first] == [hit.id for hit in second]
            assert [h.score for h in first] == pytest.approx([h.score for h in second], abs=1e-5)
    assert answers[0][1][0].id == "18"
    assert answers[0][1][0].text == TEXTS[17]


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_resumes_to_the_same_bytes(tmp_path: Path, kind: str) -> None:
    build(tmp_path / "whole", kind)
    texts = iter(TEXTS)

    def interrupted():
        for number, text in enumerate(texts):
            if number == 30:
                raise KeyboardInterrupt
            yield text

    options = {"kind": kind, "vector_type": "float32", "segment_texts": 12}
    folder = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        SearchIndex.build(interrupted(), folder, model_for(kind), **options)
    with pytest.raises(UserError, match="is an unfinished index"):
        SearchIndex.open(folder, model_for(kind))
    with pytest.raises(UserError, match="left by an interrupted run: add --resume"):
        SearchIndex.build(TEXTS, folder, model_for(kind), **options)
    with pytest.raises(UserError, match="started with another settings"):
        SearchIndex.build(
            TEXTS, folder, model_for(kind), resume=True, **{**options, "vector_type": "int8"}
        )
    (folder / f".{PROBE_FILE}.unfinished-{'0' * 16}").mkdir()
    SearchIndex.build(TEXTS, folder, model_for(kind), resume=True, **options)
    assert content(folder) == content(tmp_path / "whole")
    assert not [*folder.rglob("*.unfinished-*")]
    with pytest.raises(UserError, match="complete index: there is nothing to resume"):
        SearchIndex.build(TEXTS, folder, model_for(kind), resume=True, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_added_texts_are_ranked_as_if_indexed_at_once(tmp_path: Path, kind: str) -> None:
    whole = build(tmp_path / "whole", kind)
    items = [IdentifiedText(str(number), text) for number, text in enumerate(TEXTS, start=1)]
    folder, model = tmp_path / "added", model_for(kind)
    SearchIndex.build(items[:12], folder, model, kind=kind, vector_type="float32", segment_texts=12)
    before = content(folder)
    if model is not None:
        # Killed in its first segment, and resumed and killed in its second.
        for num_encoded, resume in ((5, False), (20, True)):
            killed = model_for(kind, fails_after=num_encoded)
            with pytest.raises(KeyboardInterrupt):
                SearchIndex.build(items[12:], folder, killed, add=True, resume=resume)
        assert before.items() <= content(folder).items()
        assert len(SearchIndex.open(folder, model)) == 12
        with pytest.raises(UserError, match="interrupted --add: run it again with --resume"):
            SearchIndex.build(items[12:], folder, model, add=True)
        added = SearchIndex.build(items[12:], folder, model, add=True, resume=True)
        with pytest.raises(UserError, match=rf"has {len(TEXTS)} texts and no unfinished run"):
            SearchIndex.build(items[12:], folder, model, add=True, resume=True)
    else:
        added = SearchIndex.build(items[12:], folder, add=True)
    assert added.search(QUERIES, 5) == whole.search(QUERIES, 5)
    assert content(folder).keys() == content(tmp_path / "whole").keys()


def test_hybrid_is_the_fusion_of_both_rankings(tmp_path: Path) -> None:
    indexes = [build(tmp_path / kind, kind) for kind in ("dense", "bm25", "hybrid")]
    dense, words, hybrid = (index.rank(QUERIES, 100) for index in indexes)
    for parts in zip(dense, words, hybrid, strict=True):
        expected = fuse_rankings(parts[:2], 100)
        assert expected.positions.tolist() == parts[2].positions.tolist()


def test_bm25_is_its_formula(tmp_path: Path) -> None:
    texts = ["red red apple", "green apple tree", "the tree", "RED!"]
    Bm25Index.write(tmp_path, texts, None)
    (ranking,) = Bm25Index.open(tmp_path, None).rank(["red, apples; Red apple"], 10)
    lists = [terms(text) for text in texts]
    mean = sum(map(len, lists)) / len(lists)

    def score(words: list[str]) -> float:
        from math import log

        total = 0.0
        for term in ("red", "red", "apple"):
            frequency = words.count(term)
            documents = sum(term in other for other in lists)
            idf = log(1 + (len(lists) - documents + 0.5) / (documents + 0.5))
            saturation = frequency + 1.5 * (1 - 0.75 + 0.75 * len(words) / mean)
            total += idf * frequency / saturation
        return total

    expected = {n: score(words) for n, words in enumerate(lists) if score(words) > 0}
    scores_by_position = dict(zip(ranking.positions.tolist(), ranking.scores.tolist(), strict=True))
    assert scores_by_position == pytest.approx(expected, rel=1e-5)


def test_words_are_lower_cased_and_stop_words_left_out(tmp_path: Path) -> None:
    assert terms("The Cat, 3x!") == ["the", "cat", "3x"]
    Bm25Index.write(tmp_path, ["the cat", "a dog"], "en")
    assert len(Bm25Index.open(tmp_path, "en").rank(["the"], 5)[0].positions) == 0
    with pytest.raises(UserError, match="no stop words of 'xx'"):
        build(tmp_path / "index", "bm25", stop_words="xx")
    assert not (tmp_path / "index").exists()


def test_a_reranker_sorts_more_texts_than_are_returned(tmp_path: Path) -> None:
    index = build(tmp_path / "index", "dense")
    depth = 20

    def reversed_hits(query: str, hits):
        assert query == QUERIES[0]
        assert len(hits) == depth
        return hits[::-1]

    (hits,) = index.search(QUERIES[:1], 3, reranker=reversed_hits, rerank_depth=depth)
    assert hits == index.search(QUERIES[:1], depth)[0][:-4:-1]


def test_unusable_inputs_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    dense = model_for("dense")
    refused = [
        (TEXTS, None, {"kind": "dense"}, "kind dense needs a model"),
        (TEXTS, None, {}, "an index needs a model: name its folder"),
        (TEXTS, dense, {"kind": "bm25"}, "bm25 uses no model"),
        (TEXTS, dense, {"kind": "sparse"}, "as dense vectors, not sparse"),
        (TEXTS, dense, {"dimensions": 99}, "--dimensions 99 is more than the 32"),
        (TEXTS, dense, {"vector_type": "int4"}, "vector_type: must be"),
        (TEXTS, model_for("sparse"), {"dimensions": 3}, "sparse vectors have no first dimensions"),
        ([], dense, {}, "no texts to index"),
        (["?!"], None, {"kind": "bm25"}, "no text has a word"),
    ]
    for texts, model, settings, message in refused:
        with pytest.raises(UserError, match=message):
            SearchIndex.build(texts, folder, model, **settings)
        assert not folder.exists()


def test_failures_of_added_texts_leave_the_index_as_it_was(tmp_path: Path) -> None:
    build(tmp_path, "hybrid")
    before = content(tmp_path)

    def texts():
        yield from TEXTS
        raise UserError("line 41 is damaged")

    with pytest.raises(UserError, match="line 41"):
        SearchIndex.build(texts(), tmp_path, model_for("dense"), add=True)
    with pytest.raises(UserError, match="leave others out"):
        SearchIndex.build(TEXTS, tmp_path, model_for("dense"), add=True, kind="dense")
    assert content(tmp_path) == before


def test_other_models_and_damaged_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "index"
    build(folder, "hybrid")
    before = content(folder)
    with pytest.raises(UserError, match="made by another model"):
        SearchIndex.open(folder, model_for("dense", seed=1))
    with pytest.raises(UserError, match="made by another model"):
        SearchIndex.build(TEXTS, folder, model_for("dense", seed=1), add=True)
    assert content(folder) == before
    with pytest.raises(UserError, match="holds dense vectors, and the model gives sparse"):
        SearchIndex.open(folder, model_for("sparse"))
    build(tmp_path / "dense", "dense")
    with pytest.raises(UserError, match="holds dense vectors, and the model gives sparse"):
        SearchIndex.open(tmp_path / "dense", model_for("sparse"))
    with pytest.raises(UserError, match="does not know the path of its model"):
        SearchIndex.open(folder)
    with pytest.raises(UserError, match="is no search index"):
        SearchIndex.open(tmp_path)
    for file in (f for f in folder.rglob("*") if f.is_file() and f.name != "progress.json"):
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy)
        damaged = copy / file.relative_to(folder)
        damaged.write_bytes(file.read_bytes()[:-9] + b"#")
        with pytest.raises(UserError, match=f"{file.name} is damaged"):
            SearchIndex.open(copy, model_for("dense"))
        shutil.rmtree(copy)


def test_damage_in_the_texts_of_a_large_index_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(tmp_path, "bm25", segment_texts=1000)
    file = tmp_path / "segments" / "000000" / "texts.jsonl"
    file.write_bytes(file.read_bytes().replace(b'"id": "18"', b'"id": 0018'))
    monkeypatch.setattr("bertwright.retrieval.search_index.MAX_BYTES_CHECKED_ON_OPEN", 0)
    index = SearchIndex.open(tmp_path)
    assert index.text(16).id == "17"
    with pytest.raises(UserError, match=r"texts\.jsonl is damaged"):
        index.search(["number17"])


def test_an_index_that_another_process_has_changed_is_not_overwritten(tmp_path: Path) -> None:
    build(tmp_path, "bm25")

    class Overtaken(IndexWriter):
        def _require_usable_settings(self) -> None:
            SearchIndex.build(["bear"], tmp_path, add=True)

    writer = Overtaken(tmp_path, read_manifest(tmp_path).settings, None)
    with pytest.raises(UserError, match="was changed by another process: run again"):
        writer.append([IdentifiedText("1", "drum")], {}, resume=False)
    assert len(SearchIndex.open(tmp_path)) == len(TEXTS) + 1
