"""Languages and translations: inputs, data sets and errors."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from bertwright.core.errors import UserError
from bertwright.data.document import Document, ReadCounts
from bertwright.data.languages import smooth_fractions, upsampling_factors
from bertwright.data.preparation import prepare
from bertwright.data.readers.sources import find_sources
from bertwright.data.readers.tables import read_documents
from bertwright.data.shards import writer as shard_writing
from bertwright.data.shards.dataset import Dataset, Split
from bertwright.data.shards.manifest import MANIFEST
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from small_text import stories

ENGLISH = ["A ship sails.", "The sea is wide.", "Nobody sleeps."]
GERMAN = ["Ein Schiff segelt.", "Das Meer ist weit.", "Niemand schläft."]
PAIRS = [Document(e, "en", Document(g, "de")) for e, g in zip(ENGLISH, GERMAN, strict=True)]
ROWS = [{"en": e, "de": g} for e, g in zip(ENGLISH, GERMAN, strict=True)]


def read(*inputs: str, **options: str) -> list[Document]:
    counts = ReadCounts()
    return list(read_documents(find_sources(inputs, counts=counts, **options), counts))


def write_parallel_lines(folder: Path) -> str:
    (folder / "t.en").write_text("\n".join(ENGLISH) + "\n")
    (folder / "t.de.gz").write_bytes(gzip.compress("\n".join(GERMAN).encode()))
    return f"en,de={folder / 't.en'},{folder / 't.de.gz'}"


def as_tsv(folder: Path) -> str:
    rows = [["id", "de", "en"], *(["1", row["de"], row["en"]] for row in ROWS)]
    (folder / "t.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    return f"en,de={folder / 't.tsv'}"


def as_jsonl(folder: Path) -> str:
    (folder / "t.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    return f"en,de={folder}"


def as_objects(folder: Path) -> str:
    (folder / "t.jsonl").write_text("\n".join(json.dumps({"text": row}) for row in ROWS))
    return f"en,de={folder / 't.jsonl'}"


def as_parquet(folder: Path) -> str:
    parquet.write_table(arrow.Table.from_pylist(ROWS), folder / "t.parquet")
    return f"en,de={folder / '*.parquet'}"


def as_parquet_objects(folder: Path) -> str:
    table = arrow.Table.from_pylist([{"text": row} for row in ROWS])
    parquet.write_table(table, folder / "t.parquet")
    return f"en,de={folder / 't.parquet'}"


WRITERS = [write_parallel_lines, as_tsv, as_jsonl, as_objects, as_parquet, as_parquet_objects]


@pytest.mark.parametrize("write", WRITERS)
def test_translation_formats(write: Callable[[Path], str], tmp_path: Path) -> None:
    assert read(write(tmp_path)) == PAIRS


def test_language_of_a_file_or_of_each_row(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ein Schiff.\n\nDas Meer.")
    assert read(f"de={tmp_path / 'a.txt'}") == [
        Document("Ein Schiff.", "de"),
        Document("Das Meer.", "de"),
    ]
    rows = [{"text": "A ship.", "lang": "en"}, {"text": "一条船。", "lang": "zh-Hans"}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "b.csv").write_text("lang,text\nen,A ship.\nzh-Hans,一条船。\n")
    parquet.write_table(arrow.Table.from_pylist(rows), tmp_path / "b.parquet")
    expected = [Document(row["text"], row["lang"]) for row in rows]
    for ending in ("jsonl", "csv", "parquet"):
        assert read(str(tmp_path / f"b.{ending}"), language_column="lang") == expected


def test_language_code_as_suffix(tmp_path: Path) -> None:
    write_parallel_lines(tmp_path)
    assert read(f"de={tmp_path / 't.de.gz'}") == [Document("\n".join(GERMAN), "de")]


def test_file_name_with_an_equals_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a=b.txt").write_text("text")
    assert read("a=b.txt") == [Document("text")]
    Path("year=2020").mkdir()
    Path("year=2020/a.txt").write_text("text")
    assert read("year=2020/*.txt") == [Document("text")]


def test_empty_translations_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("One.\n\nThree.\n")
    (tmp_path / "b").write_text("Eins.\nZwei.\nDrei.\n")
    counts = ReadCounts()
    sources = find_sources([f"en,de={tmp_path / 'a'},{tmp_path / 'b'}"], counts=counts)
    assert [d.text for d in read_documents(sources, counts)] == ["One.", "Three."]
    assert counts.unpaired_translations == 1


MISTAKES = (
    "misaligned",
    "no side",
    "no language",
    "no code",
    "not a code",
    "one is not stated",
    "a text for two",
    "a text has no column",
    "three files",
    "twice the same",
    "nowhere",
    "two tables",
    "one text in two languages",
    "one text in one and in none",
)


def wrong_inputs(folder: Path) -> dict[str, tuple[list[str], dict[str, str], str]]:
    (folder / "a.txt").write_text("One.\nTwo.\nThree.")
    (folder / "b.txt").write_text("Eins.\nZwei.")
    (folder / "c.jsonl").write_text('{"text": "One.", "language": "English"}')
    (folder / "d.tsv").write_text("en\tfr\nOne.\tUn.\n")
    a, b, c, d = (folder / name for name in ("a.txt", "b.txt", "c.jsonl", "d.tsv"))
    return {
        "misaligned": ([f"en,de={a},{b}"], {}, "b.txt ends after line 2 and .*a.txt is longer"),
        "no side": ([f"en,de={d}"], {}, "d.tsv has no column 'de'.*are language codes"),
        "no language": ([str(c)], {"language_column": "lang"}, "no column 'lang'.*'language'"),
        "no code": ([str(c)], {"language_column": "language"}, "'English' is not a language code"),
        "not a code": ([f"English={a}"], {}, "'English' is not a language code"),
        "one is not stated": ([f"en={a}", str(b)], {}, "b.txt does not: write en="),
        "a text for two": ([f"en,de={a}"], {}, "cannot hold both languages"),
        "a text has no column": ([str(a)], {"language_column": "x"}, "no column 'x': state its"),
        "three files": ([f"en,de={a},{b},{c}"], {}, "en,de=FILE,FILE"),
        "twice the same": ([f"en,en={a},{b}"], {}, "en,de=FILE,FILE"),
        "nowhere": ([f"en,de={a},nowhere"], {}, "nowhere: there is no such file"),
        "two tables": ([f"en,de={a},{c}"], {}, "c.jsonl is jsonl, .* write en,de=TABLE"),
        "one text in two languages": ([f"en={a}", f"de={a}"], {}, "a.txt is named twice"),
        "one text in one and in none": ([f"en={a}", str(folder)], {}, "a.txt is named twice"),
    }


@pytest.mark.parametrize("case", MISTAKES)
def test_invalid_input_raises_and_leaves_no_files(
    case: str, tmp_path: Path, wordpiece: Tokenizer
) -> None:
    inputs, options, message = wrong_inputs(tmp_path)[case]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(UserError, match=message) as raised:
        prepare(inputs, tmp_path / "data", wordpiece, num_workers=1, **options)
    assert "\n" not in str(raised.value)
    assert sorted(tmp_path.iterdir()) == before


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Return inputs in two languages, and thirty translations."""
    texts = stories(60)
    (tmp_path / "stories.txt").write_text("\n\n".join(texts[:40]))
    (tmp_path / "swedish.txt").write_text("\n\n".join(texts[40:]))
    (tmp_path / "p.en").write_text("".join(f"Ship {n} sails. It is late.\n" for n in range(30)))
    (tmp_path / "p.de").write_text("".join(f"Schiff {n} segelt.\n" for n in range(30)))
    return [
        f"en={tmp_path / 'stories.txt'}",
        f"sv={tmp_path / 'swedish.txt'}",
        f"en,de={tmp_path / 'p.en'},{tmp_path / 'p.de'}",
    ]


def decode_document(data: Dataset, split: Split, document: int) -> str:
    start, stop = split.document_starts[document : document + 2].tolist()
    return data.tokenizer.decode(split.token_ids(start, stop).tolist())


def test_data_set_with_languages_and_translations(
    inputs: list[str], tmp_path: Path, wordpiece: Tokenizer
) -> None:
    data = prepare(inputs, tmp_path / "data", wordpiece, heldout=0.2, num_workers=1)
    assert data.manifest.languages == ("en", "sv", "de")
    pairs = 0
    for name in ("train", "heldout"):
        split, counts = data.split(name), data.manifest.splits[name]
        assert split.language_ids is not None
        lengths = np.diff(split.document_starts)
        for number, code in enumerate(data.manifest.languages):
            is_language = split.language_ids == number
            assert counts.languages[code].documents == is_language.sum()
            assert counts.languages[code].tokens == lengths[is_language].sum()
        assert counts.translations == len(split.translations)
        pairs += len(split.translations)
        for second in split.translations.tolist():
            source, target = (decode_document(data, split, d) for d in (second - 1, second))
            assert source.split()[1] == target.split()[1]
            codes = [split.language_names[split.language_ids[d]] for d in (second - 1, second)]
            assert codes == ["en", "de"]
    assert pairs == data.report["translations"] == 30
    assert data.report["languages"]["de"]["documents"] == 30
    assert Dataset.open(data.path).manifest == data.manifest


def test_result_does_not_depend_on_the_number_of_workers(
    inputs: list[str], tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertwright.data.preparation.CHUNK_CHARACTERS", 500)
    one, three = (
        prepare(inputs, tmp_path / str(workers), wordpiece, num_workers=workers)
        for workers in (1, 3)
    )
    assert one.manifest == three.manifest


def test_data_without_languages(tmp_path: Path, wordpiece: Tokenizer) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(stories(10)))
    plain = prepare(tmp_path / "a.txt", tmp_path / "plain", wordpiece, num_workers=1)
    assert plain.split("train").language_ids is None
    assert not list(plain.path.glob("*.languages.bin"))
    with_language = prepare(
        f"en={tmp_path / 'a.txt'}", tmp_path / "spoken", wordpiece, num_workers=1
    )
    assert with_language.manifest.hash != plain.manifest.hash
    # A manifest without the language fields.
    file = plain.path / MANIFEST
    old = json.loads(file.read_text())
    del old["languages"]
    for counts in old["splits"].values():
        del counts["languages"], counts["translations"]
    file.write_text(json.dumps(old))
    assert Dataset.open(plain.path).manifest == plain.manifest


def test_too_many_languages_raise(
    inputs: list[str], tmp_path: Path, wordpiece: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_writing, "MAX_LANGUAGES", 2)
    with pytest.raises(UserError, match="more than 2 languages"):
        prepare(inputs, tmp_path / "data", wordpiece, num_workers=1)


def test_smoothing_matches_the_paper() -> None:
    sizes, alpha = [700.0, 250.0, 50.0], 0.3
    p = [size / sum(sizes) for size in sizes]
    q = [fraction**alpha / sum(other**alpha for other in p) for fraction in p]
    assert max(abs(a - b) for a, b in zip(smooth_fractions(sizes, alpha), q, strict=True)) < 1e-9
    factors = upsampling_factors(dict(zip("abc", sizes, strict=True)), alpha)
    counted = [size * factor for size, factor in zip(sizes, factors.values(), strict=True)]
    assert math.isclose(min(factors.values()), 1.0)
    for fraction, expected in zip(counted, q, strict=True):
        assert math.isclose(fraction / sum(counted), expected, rel_tol=1e-9)
    assert smooth_fractions(sizes, 0.0) == [1 / 3] * 3
    assert set(upsampling_factors({"a": 3.0, "b": 1.0}, 1.0).values()) == {1.0}


def test_smoothing_gives_a_small_language_more_tokens(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text(
        "\n\n".join(f"{story} {n}" for n in range(20) for story in stories(20))
    )
    small = "Nachtschattengewächse blühen. Nachtschattengewächse ruhen."
    (tmp_path / "small.txt").write_text(small)
    inputs = [f"en={tmp_path / 'large.txt'}", f"de={tmp_path / 'small.txt'}"]
    config = {"kind": "wordpiece", "vocab_size": 260}

    def lengths(name: str, **options: float) -> tuple[str, int]:
        tokenizer = train_tokenizer_on_files(
            inputs, tmp_path / name, config, num_workers=1, **options
        )
        return tokenizer.hash, len(tokenizer.encode("Nachtschattengewächse"))

    (plain, long), (whole, same), (_, short) = (
        lengths("plain"),
        lengths("whole", alpha=1.0),
        lengths("smooth", alpha=0.3),
    )
    assert (plain, long) == (whole, same)
    assert short < long
    with pytest.raises(UserError, match="alpha weights languages"):
        train_tokenizer_on_files([tmp_path / "large.txt"], tmp_path / "x", config, alpha=0.3)


def test_multi30k(shared_data: Path, tmp_path: Path, wordpiece: Tokenizer) -> None:
    folder = shared_data / "multi30k"
    inputs = [f"en,{code}={folder / 'val.en'},{folder / f'val.{code}'}" for code in ("de", "fr")]
    report = prepare(inputs, tmp_path / "data", wordpiece, num_workers=1).report
    assert report["translations"] == 2 * 1014 - report["duplicates"]
    assert set(report["languages"]) == {"en", "de", "fr"}
