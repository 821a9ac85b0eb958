"""The code and the documents use the words of the field, and one class name means one class."""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
SOURCE = CHECKOUT / "src" / "bertwright"
DOCUMENTS = sorted(
    path
    for path in [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md")]
    if "_build" not in path.parts
)

FORBIDDEN_NAME = re.compile(
    "own|found|told|said|asked?|heard?|given|made|wanted|chosen|beside|apart|each"
)
"""Names that do not say what they hold."""

FORBIDDEN_PART = re.compile(
    "pieces?|places?|told|said|asked|heard|whoever|nobody|guess(es)?|lessons?|taught|judge|hides"
    "|own|found"
)
"""Words that are no part of a name."""

FORBIDDEN_TEXT = re.compile(
    r"\b(pieces?|(?<!in )(?<!in-)(?<!in_)(?<!take )(?<!takes )(?<!took )places?"
    r"|told|said|asked|asking|heard|hears?|whoever|nobody|of which|guess(es|ed)?"
    r"|lessons?|taught|teaching|judg(e|es|ed|ing)|hides?|hid|anew|so many|one's own"
    r"|what is (asked|chosen|done|given|heard|known|made|meant|read|said|seen|shown|told|wanted)"
    r"|row mates?|rows? of (tokens|text|a batch|the batch))\b",
    re.IGNORECASE,
)
"""Words and forms of everyday speech where the field has a term: token, position, sequence, target,
prediction, distillation, evaluator, masked."""

STREAM_NAME = "the name of a random stream, which never changes"
SENTENCES = "words of example sentences"
MEASURED = "measured before the words changed; replaced when it is measured again"
EXCEPTIONS = {
    "src/bertwright/core/rng.py": STREAM_NAME,
    "src/bertwright/analysis/attribution/input_attribution.py": STREAM_NAME,
    "src/bertwright/analysis/behaviour/triggers/universal_triggers.py": STREAM_NAME,
    "src/bertwright/analysis/core/prediction_probe.py": STREAM_NAME,
    "src/bertwright/batches/masking/corruption.py": STREAM_NAME,
    "src/bertwright/analysis/behaviour/checklist/sentiment_suites.py": SENTENCES,
    "src/bertwright/analysis/geometry/sense_sentences.py": SENTENCES,
    "src/bertwright/analysis/probing/main_auxiliary.py": SENTENCES,
    "src/bertwright/analysis/syntax/attention_features.py": SENTENCES,
    "src/bertwright/analysis/syntax/stories.py": SENTENCES,
    "docs/results/README.md": MEASURED,
    "docs/results/analyses.md": MEASURED,
    "docs/results/machines.md": MEASURED,
    "docs/results/small.md": MEASURED,
    "docs/results/speed.md": MEASURED,
}
"""Files that may have such words, at most 20, with the reason."""


def code_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of comments and strings of a Python file."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or (
            token.type == getattr(tokenize, "FSTRING_MIDDLE", None)
        ):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def code_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the names that a Python file defines: variables, parameters, functions, classes."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name
            case ast.ClassDef(name=name):
                yield node.lineno, name
            case _:
                pass


def name_words(name: str) -> list[str]:
    """Return the words of a name, in lower case; WordPiece and in-place are terms of the field."""
    name = name.replace("WordPiece", "").replace("in_place", "")
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def findings() -> Iterator[tuple[str, int, str, str]]:
    """Yield file, line, word and text of every forbidden word."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = str(path.relative_to(CHECKOUT))
        for line, name in code_names(path):
            is_forbidden = FORBIDDEN_NAME.fullmatch(name.strip("_"))
            if is_forbidden or any(map(FORBIDDEN_PART.fullmatch, name_words(name))):
                yield file, line, name, name
        for line, text in code_texts(path):
            for match in FORBIDDEN_TEXT.finditer(text):
                yield file, line, match[0], text.strip()
    for path in DOCUMENTS:
        file = str(path.relative_to(CHECKOUT))
        for line, text in enumerate(path.read_text().splitlines(), 1):
            for match in FORBIDDEN_TEXT.finditer(text):
                yield file, line, match[0], text.strip()


def test_code_and_documents_use_the_words_of_the_field() -> None:
    used, wrong = set[str](), list[str]()
    for file, line, word, text in findings():
        if file in EXCEPTIONS:
            used.add(file)
        else:
            wrong.append(f"{file}:{line}: {word!r} in {text:.80}")
    assert not wrong, "\n".join(wrong)
    assert used == set(EXCEPTIONS), "exceptions without a finding: remove them"
    assert len(EXCEPTIONS) <= 20


def test_no_class_name_occurs_twice() -> None:
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert not [name for name, count in names.items() if count > 1]
