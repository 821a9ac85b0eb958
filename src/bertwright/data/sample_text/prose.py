"""Extraction of prose paragraphs from documentation.

Paragraphs of complete sentences are kept, one per line and without markup; headings, parameter
lists and examples are dropped. Instead of a parser, this uses heuristics that fit reStructuredText,
numpydoc, Google style and Markdown alike.
"""

import re
from inspect import cleandoc

from bertwright.data.tokenization.sentences import sentence_ends

MIN_WORDS = 6
MIN_LETTER_FRACTION = 0.85
"""Minimum fraction of letters among the characters of a paragraph, white space excluded."""
MIN_PLAIN_WORD_FRACTION = 0.7
MIN_FUNCTION_WORD_FRACTION = 0.15
"""Minimum fractions of plain words and of function words among all words of a paragraph."""


def prose_paragraphs(documentation: str) -> list[str]:
    """Return the prose paragraphs of a text with markup, one line each."""
    parser = _ParagraphParser()
    for line in cleandoc(documentation).splitlines():
        parser.feed(line)
    parser.close()
    long_enough = (p for p in parser.paragraphs if p.count(" ") + 1 >= MIN_WORDS)
    sentences = (trim_to_sentences(remove_markup(paragraph)) for paragraph in long_enough)
    return [paragraph for paragraph in sentences if is_prose(paragraph)]


def is_prose(paragraph: str) -> bool:
    """Return whether a line is English prose, and not code, names or numbers."""
    words = paragraph.split()
    if len(words) < MIN_WORDS or not paragraph.isprintable() or _CODE.search(paragraph):
        return False
    letters = sum(map(str.isalpha, paragraph)) / sum(map(len, words))
    plain = [match.group(1).lower() for word in words if (match := _PLAIN_WORD.fullmatch(word))]
    function_words = sum(word in _FUNCTION_WORDS for word in plain)
    return (
        letters >= MIN_LETTER_FRACTION
        and len(plain) >= MIN_PLAIN_WORD_FRACTION * len(words)
        and function_words >= MIN_FUNCTION_WORD_FRACTION * len(words)
    )


def trim_to_sentences(paragraph: str) -> str:
    """Return a paragraph up to its last full stop; "" if it begins inside a sentence."""
    if not _SENTENCE_OPENING.match(paragraph):
        return ""
    if _STOP.search(paragraph):
        return paragraph
    return paragraph[: max(sentence_ends(paragraph), default=0)]


def remove_markup(paragraph: str) -> str:
    """Return the visible text of a paragraph, without code quotes, roles and link targets."""
    if _MARKUP_CHARACTER.search(paragraph):
        for pattern, replacement in _MARKUP:
            paragraph = pattern.sub(replacement, paragraph)
    return " ".join(paragraph.split())


class _ParagraphParser:
    """A line-by-line splitter of documentation into paragraphs, list items and descriptions."""

    def __init__(self) -> None:
        self.paragraphs: list[str] = []
        self._lines: list[str] = []
        self._start = 0
        self._is_hanging = False
        self._indent = 0  # of the paragraph's lines after the first
        self._skip_indent: int | None = None  # lines with a larger indent are not prose
        self._is_skipping_to_blank = False
        self._fence = ""

    def feed(self, line: str) -> None:
        """Process the next line."""
        body = line.strip()
        indent = len(line) - len(line.lstrip())
        if self._fence or body.startswith(("```", "~~~")):
            self.close()
            self._fence = "" if self._fence and body.startswith(self._fence) else body[:3]
        elif not body:
            self.close()
            self._is_skipping_to_blank = False
        elif not self._is_in_code(indent):
            self._read_text(body, indent)

    def close(self) -> None:
        """End the paragraph."""
        if self._lines:
            if self._lines[-1].endswith("::"):
                self._skip_indent = self._start
            self.paragraphs.append(" ".join(self._lines))
        self._lines = []

    def _is_in_code(self, indent: int) -> bool:
        if self._skip_indent is not None and indent <= self._skip_indent:
            self._skip_indent = None
        return self._is_skipping_to_blank or self._skip_indent is not None

    def _read_text(self, body: str, indent: int) -> None:
        if _RULE.fullmatch(body):
            if len(self._lines) == 1:
                self._lines.clear()  # the heading above the rule
            self.close()
        elif body.startswith(_CODE_LINES):
            self.close()
            self._is_skipping_to_blank = True
        elif body.startswith(_NO_TEXT) or _TYPED_NAME.match(body):
            self.close()
        elif body.startswith(".. "):
            self.close()
            directive = _PROSE_DIRECTIVE.match(body)
            if directive is None:
                self._skip_indent = indent
            else:
                self._start_paragraph(body[directive.end() :], indent, hanging=True)
        elif item := _ITEM.match(body):
            self.close()
            self._start_paragraph(body[item.end() :], indent, hanging=True)
        elif self._continues_paragraph(body, indent):
            self._lines.append(body)
        else:
            self.close()
            self._start_paragraph(body, indent)

    def _start_paragraph(self, body: str, indent: int, hanging: bool = False) -> None:
        """Start a paragraph; a parameter name before its description is dropped."""
        name = _NAME_PREFIX.match(body)
        text = body[name.end() :] if name else body
        self._lines = [text] if text else []
        self._start = self._indent = indent
        self._is_hanging = hanging or name is not None

    def _continues_paragraph(self, body: str, indent: int) -> bool:
        """Return whether a line belongs to the open paragraph."""
        if not self._lines or (
            self._is_hanging and indent == self._start and _NAME_PREFIX.match(body)
        ):
            return False
        if self._is_hanging and len(self._lines) == 1 and indent > self._start:
            self._indent = indent  # the second line of an item decides its indent
        return indent == self._indent


_RULE = re.compile(r"([-=~^\"'`*+#:._])\1{2,}|[-=+ |]{3,}")
"""An underline of a heading, or a border of a table."""

_CODE_LINES = (">>>", "In [", "$ ")
_NO_TEXT = ("|", "#", "<", "+-")

_TYPED_NAME = re.compile(r"[`'\w*.,\\ -]{1,60} :(?: |$)")
"""A line that is only ``name : type``."""

_NAME_PREFIX = re.compile(
    r"`{0,2}\*{0,2}[A-Za-z_][\w.]*`{0,2}(?:, ?`{0,2}\*{0,2}\w+`{0,2})*"
    r"(?: ?\((?:[^()]|\([^()]*\))*\))?(?::| --?) +(?=\S)"
)
"""``name (type): `` and ``name: `` before a description."""

_ITEM = re.compile(r"(?:[-*+\u2022]|\(?\d{1,2}[.)]|\(?[a-z]\)|[:@][a-z]\w*(?: [^:]*)?:) +(?=\S)")
"""The marker of a list item or of a field."""

_PROSE_DIRECTIVE = re.compile(
    r"\.\. (?:(?:note|warning|tip|hint|important|caution|attention|seealso|topic)::"
    r"|(?:version(?:added|changed)|deprecated):: *v?[\d.]*) *"
)

_MARKUP_CHARACTER = re.compile(r"[`*[]")
_MARKUP = (
    (re.compile(r"!?\[([^][]*)\](?:\([^()\s]*\)|\[[^][]*\])"), r"\1"),  # [text](target), [text][1]
    (re.compile(r":[a-z][\w:+-]*:`~(?:[\w.]*\.)?(\w+(?:\(\))?)`"), r"\1"),  # :role:`~a.b.name`
    (re.compile(r"(?::[a-z][\w:+-]*:)?`([^`<>]+?)\s*<[^<>`]*>`_{0,2}"), r"\1"),  # `text <target>`_
    (re.compile(r"(?::[a-z][\w:+-]*:)?(`+)!?([^`]+)\1_{0,2}"), r"\2"),  # `text`, ``text``
    (re.compile(r" ?\[[\w#*]+\]_"), ""),  # [1]_
    # *text*, **text**
    (re.compile(r"(?<![\w*])(\*{1,2})(?=[\w\"'(])([^*]+?)(?<=[\w\"').:])\1(?![\w*])"), r"\2"),
)

_SENTENCE_OPENING = re.compile(r"[\"'\u201c\u2018(\[]*[A-Z]")
_STOP = re.compile(r"[.!?][\"'\u201d\u2019)\]]*$")
_PLAIN_WORD = re.compile(
    r"[\"'\u201c\u2018(\[]*([A-Za-z]+(?:['\u2019/-][A-Za-z]+)*)[\"'\u201d\u2019)\].,;:?!]*"
)
_CODE = re.compile(r"[{}\\|^~`]|%[sdrifg(]|<\w|\w>|==|::|->|\w=|\$\w|://")
_WORDS = (
    "a about after all also an and any are as at be because been before being both but by can "
    "cannot could do does each either else for from had has have how if in into is it its itself "
    "may might more most must no nor not of on one only or other otherwise out over same shall "
    "should since so some such than that the their them then there these they this those through "
    "to under until up used was we were what when where whether which while who will with within "
    "without would you your"
)
_FUNCTION_WORDS = frozenset(_WORDS.split())
