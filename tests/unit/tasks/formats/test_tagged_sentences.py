"""Tagged words: three layouts, skipped lines, and errors with their line."""

import gzip
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from bertwright.tasks.formats.examples import TaggedSentence
from bertwright.tasks.formats.tagged_sentences import TaggedSentenceReader

CONLLU = """\
# sent_id = 1
# text = They don't. # not a comment
1\tThey\tthey\tPRON\tPRP\tCase=Nom\t2\tnsubj\t_\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t0\troot\t_\tSpaceAfter=No
3\tn't\tnot\tPART\tRB\t_\t2\tadvmod\t_\t_
3.1\tgo\tgo\tVERB\tVB\t_\t_\t_\t_\t_

1\t#\t#\tSYM\tNFP\t_\t0\troot\t_\t_
"""

IOB2 = """\
# newdoc id = a
# text = Barb ran
1\tBarb\tB-PER\t-\tannotator
2\tran\tO\t-\t-

# text = New York
1\tNew\tB-LOC\t-\t-
2\tYork\tI-LOC\t-\t-
"""

CONLL_2003 = """\
-DOCSTART- -X- O O

U.N. NNP I-NP I-ORG
official NN I-NP O

# NN I-NP O
5 CD I-NP O
"""


def read_tagged(path: Path, column: str | None = "tag") -> list[TaggedSentence]:
    reader = TaggedSentenceReader() if column is None else TaggedSentenceReader(column=column)
    return reader.read(path, with_labels=column is not None)


def written(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    ("column", "tags"),
    [
        ("upos", [("PRON", "AUX", "PART"), ("SYM",)]),
        ("xpos", [("PRP", "VBP", "RB"), ("NFP",)]),
        ("feats", [("Case=Nom", "_", "_"), ("_",)]),
        (None, [None, None]),
    ],
)
def test_conllu_keeps_the_syntactic_words(
    tmp_path: Path, column: str | None, tags: list[tuple[str, ...]]
) -> None:
    words = [("They", "do", "n't"), ("#",)]
    expected = [TaggedSentence(w, t) for w, t in zip(words, tags, strict=True)]
    assert read_tagged(written(tmp_path / "x.conllu", CONLLU), column) == expected
    (tmp_path / "x.conllu.gz").write_bytes(gzip.compress(CONLLU.encode()))
    assert read_tagged(tmp_path / "x.conllu.gz", column) == expected


def test_numbered_words(tmp_path: Path) -> None:
    assert read_tagged(written(tmp_path / "x.iob2", IOB2)) == [
        TaggedSentence(("Barb", "ran"), ("B-PER", "O")),
        TaggedSentence(("New", "York"), ("B-LOC", "I-LOC")),
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_plain_columns(tmp_path: Path, end: str) -> None:
    path = written(tmp_path / "x.conll", CONLL_2003.replace("\n", end))
    assert read_tagged(path) == [
        TaggedSentence(("U.N.", "official"), ("I-ORG", "O")),
        TaggedSentence(("#", "5"), ("O", "O")),
    ]


def test_untagged_words_are_read_for_prediction(tmp_path: Path) -> None:
    path = written(tmp_path / "x.txt", "a\nb\n\nc\n")
    assert read_tagged(path, None) == [TaggedSentence(("a", "b")), TaggedSentence(("c",))]


def test_a_sentence_ends_with_the_file(tmp_path: Path) -> None:
    assert len(read_tagged(written(tmp_path / "x.iob2", IOB2.rstrip("\n")))) == 2
    assert len(read_tagged(written(tmp_path / "x.iob2", "\n\n" + IOB2 + "\n \n\n"))) == 2


@pytest.mark.parametrize(
    ("name", "text", "column", "sentence"),
    [
        ("x.conllu", CONLLU, "uposs", "x.conllu: no column 'uposs': did you mean 'upos'?"),
        ("x.conllu", CONLLU, "tag", "x.conllu: no column 'tag' (known: feats, head, upos, xpos)"),
        ("x.iob2", IOB2, "upos", "x.iob2: no column 'upos' (known: tag)"),
        (
            "x.conllu",
            CONLLU.replace("3\tn't", "4\tn't"),
            "upos",
            "x.conllu line 6: word number '4' instead of 3",
        ),
        (
            "x.conllu",
            CONLLU.replace("\tSpaceAfter=No", ""),
            "upos",
            "x.conllu line 5 has 9 columns instead of 10 as in line 3: all lines of a file "
            "need the same number",
        ),
        (
            "x.conllu",
            CONLLU + "\n1.1" + "\t_" * 9 + "\n",
            "upos",
            f"x.conllu line {CONLLU.count(chr(10)) + 2}: a sentence without words: remove it",
        ),
        ("x.conllu", IOB2, "upos", "x.conllu line 3: no upos for the word 'Barb'"),
        ("x.conll", "a\nb\n", "tag", "x.conll line 1: no tag for the word 'a'"),
        ("x.conll", "a\tO\nb\t\n", "tag", "x.conll line 2: no tag for the word 'b'"),
        ("x.conll", "# only a comment\n\n", "tag", "x.conll has no sentences"),
        ("x.conll", "", "tag", "x.conll has no sentences"),
    ],
)
def test_invalid_input_is_reported_in_one_sentence(
    tmp_path: Path, name: str, text: str, column: str, sentence: str
) -> None:
    path = written(tmp_path / name, text)
    with pytest.raises(UserError) as caught:
        read_tagged(path, column)
    assert str(caught.value) == f"{tmp_path}/{sentence}"


def comments(separator: str, *comment: str, twice: str = "") -> str:
    sentence = [("maria", "_", "B-PER"), ("lives", "_", "O"), ("in", "_", "O"), ("#", "_", "O")]
    lines = [separator.join(comment), *map(separator.join, sentence), twice]
    return "\n".join(lines) * 2 + "\n"


@pytest.mark.parametrize("separator", [" ", "\t", "  "])
@pytest.mark.parametrize("blank", ["", " ", "\t", " \t "])
@pytest.mark.parametrize(
    "comment", [("# id", "domain=en"), ("#", "id", "domain=en"), ("# id 7", "x", "domain=en")]
)
def test_a_comment_may_have_as_many_columns_as_the_words(
    tmp_path: Path, separator: str, blank: str, comment: tuple[str, ...]
) -> None:
    text = comments(separator, *comment, twice=f"{blank}\n")
    assert (
        read_tagged(written(tmp_path / "x.conll", text))
        == [TaggedSentence(("maria", "lives", "in", "#"), ("B-PER", "O", "O", "O"))] * 2
    )


def test_a_word_may_begin_with_a_hash_where_its_last_column_is_a_tag(tmp_path: Path) -> None:
    text = "#Brexit B-EVENT\nis O\n\n# O\n5 O\n\n#late O\n"
    assert [s.words for s in read_tagged(written(tmp_path / "x.conll", text))] == [
        ("#Brexit", "is"), ("#", "5"), ("#late",)
    ]  # fmt: skip
    assert [s.words for s in read_tagged(written(tmp_path / "y.conll", text), None)] == [
        ("#Brexit", "is"), ("#", "5"), ("#late",)
    ]  # fmt: skip


def test_comments_of_numbered_words_may_have_tabs(tmp_path: Path) -> None:
    text = "# text\t=\tx\ty\tO\n" + IOB2
    assert len(read_tagged(written(tmp_path / "x.iob2", text))) == 2
    tabbed = "#" + "\tx" * 9 + "\n" + CONLLU
    assert len(read_tagged(written(tmp_path / "x.conllu", tabbed), "upos")) == 2


@pytest.mark.parametrize("name", ["x.conllu", "x.conll", "x.txt"])
def test_conllu_is_detected_by_content(tmp_path: Path, name: str) -> None:
    words = [("They", "do", "n't"), ("#",)]
    tags = [("PRON", "AUX", "PART"), ("SYM",)]
    sentences = read_tagged(written(tmp_path / name, CONLLU), "upos")
    assert sentences == [TaggedSentence(w, t) for w, t in zip(words, tags, strict=True)]
    with pytest.raises(UserError, match=r"no column 'tag' \(known: feats, head, upos, xpos\)"):
        read_tagged(tmp_path / name)


@pytest.mark.parametrize(
    "start", ["-DOCSTART-", "-DOCSTART- O", "-DOCSTART- -X- -X- O", "-DOCSTART-\tx\ty\tO", ""]
)
@pytest.mark.parametrize("blank", ["\n", ""])
@pytest.mark.parametrize("separator", [" ", "\t"])
def test_the_start_of_a_document_is_no_sentence(
    tmp_path: Path, start: str, blank: str, separator: str
) -> None:
    words = separator.join(("a", "x", "B-PER")) + "\n"
    text = f"{start}\n{blank}{words}{start}\n{blank}{words}"
    expected = [TaggedSentence(("a",), ("B-PER",))] * 2
    if not start:
        text = text.replace("\n\n", "\n \n")
    assert read_tagged(written(tmp_path / "x.conll", text)) == expected


def test_trailing_spaces_are_no_column(tmp_path: Path) -> None:
    for text in ("a O \nb B-X \n \t\nc O \n", "a\tO\t\nb\tB-X\t\n\t\nc\tO\t\n"):
        assert read_tagged(written(tmp_path / "x.conll", text)) == [
            TaggedSentence(("a", "b"), ("O", "B-X")), TaggedSentence(("c",), ("O",))
        ]  # fmt: skip


def test_words_may_contain_spaces_where_columns_are_tabs(tmp_path: Path) -> None:
    path = written(tmp_path / "x.conll", "New York\tB-LOC\nis\tO\n")
    assert read_tagged(path) == [TaggedSentence(("New York", "is"), ("B-LOC", "O"))]


def test_a_word_that_is_not_annotated_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "x.conllu", CONLLU.replace("AUX", "_"))
    with pytest.raises(UserError, match=r"x\.conllu line 5: no upos for the word 'do'"):
        read_tagged(path, "upos")
    path = written(tmp_path / "x.conll", "a\tO\n\tO\n")
    with pytest.raises(UserError, match=r"x\.conll line 2: the word column is empty"):
        read_tagged(path)


def test_real_files_have_the_published_sizes(shared_data: Path) -> None:
    dev = read_tagged(shared_data / "ud_en_ewt" / "en_ewt-ud-dev.conllu.gz", "upos")
    assert (len(dev), sum(len(s.words) for s in dev)) == (2001, 25147)
    assert len({tag for s in dev for tag in s.tags or ()}) == 17
    entities = read_tagged(shared_data / "uner_en_ewt" / "dev.iob2")
    assert (len(entities), sum(len(s.words) for s in entities)) == (501, 7552)
    assert {tag for s in entities for tag in s.tags or ()} == {
        "O",
        *(f"{prefix}-{kind}" for prefix in "BI" for kind in ("PER", "LOC", "ORG")),
    }
