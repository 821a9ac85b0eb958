"""Documentation to prose: the paragraphs of a docstring that read like a book.

Documentation is written for the eye: headings underlined, parameters listed, examples indented.
Kept are its paragraphs of whole sentences, each on one line, without markup. Rules of thumb for
reStructuredText, numpydoc, Google's style and Markdown at once; no parser of any of them.
"""

import re
from inspect import cleandoc

from bertwright.text.sentences import sentence_ends

FEWEST_WORDS = 6
LEAST_LETTERS = 0.85
"""Share of all characters but white space."""
LEAST_PLAIN_WORDS = 0.7
LEAST_FUNCTION_WORDS = 0.15
"""Shares of all words."""


def prose_paragraphs(documentation: str) -> list[str]:
    """The paragraphs of prose in a docstring or another text with markup, one line each."""
    reader = _Reader()
    for line in cleandoc(documentation).splitlines():
        reader.read(line)
    reader.close()
    long_enough = (p for p in reader.paragraphs if p.count(" ") + 1 >= FEWEST_WORDS)
    sentences = (whole_sentences(without_markup(paragraph)) for paragraph in long_enough)
    return [paragraph for paragraph in sentences if is_prose(paragraph)]


def is_prose(paragraph: str) -> bool:
    """Whether whole sentences on one line are English, and not code, names or numbers."""
    words = paragraph.split()
    if len(words) < FEWEST_WORDS or not paragraph.isprintable() or _CODE.search(paragraph):
        return False
    letters = sum(map(str.isalpha, paragraph)) / sum(map(len, words))
    plain = [found.group(1).lower() for word in words if (found := _PLAIN_WORD.fullmatch(word))]
    function_words = sum(word in _FUNCTION_WORDS for word in plain)
    return (
        letters >= LEAST_LETTERS
        and len(plain) >= LEAST_PLAIN_WORDS * len(words)
        and function_words >= LEAST_FUNCTION_WORDS * len(words)
    )


def whole_sentences(paragraph: str) -> str:
    """The paragraph up to its last full stop; nothing if it begins inside a sentence."""
    if not _BEGINNING.match(paragraph):
        return ""
    if _STOP.search(paragraph):
        return paragraph
    return paragraph[: max(sentence_ends(paragraph), default=0)]


def without_markup(paragraph: str) -> str:
    """The words that a reader sees: no quotes of code, no roles, no targets of links."""
    if _MARKED.search(paragraph):
        for pattern, seen in _MARKUP:
            paragraph = pattern.sub(seen, paragraph)
    return " ".join(paragraph.split())


class _Reader:
    """Splits documentation, line by line, into paragraphs, list items and descriptions."""

    def __init__(self) -> None:
        self.paragraphs: list[str] = []
        self._lines: list[str] = []
        self._start = 0
        self._hanging = False
        self._indent = 0  # of the lines after the first
        self._left_out: int | None = None  # lines deeper than this are no prose
        self._to_blank = False
        self._fence = ""

    def read(self, line: str) -> None:
        """Take the next line."""
        body = line.strip()
        indent = len(line) - len(line.lstrip())
        if self._fence or body.startswith(("```", "~~~")):
            self.close()
            self._fence = "" if self._fence and body.startswith(self._fence) else body[:3]
        elif not body:
            self.close()
            self._to_blank = False
        elif not self._in_code(indent):
            self._read_text(body, indent)

    def close(self) -> None:
        """End the paragraph."""
        if self._lines:
            if self._lines[-1].endswith("::"):
                self._left_out = self._start
            self.paragraphs.append(" ".join(self._lines))
        self._lines = []

    def _in_code(self, indent: int) -> bool:
        if self._left_out is not None and indent <= self._left_out:
            self._left_out = None
        return self._to_blank or self._left_out is not None

    def _read_text(self, body: str, indent: int) -> None:
        if _RULE.fullmatch(body):
            if len(self._lines) == 1:
                self._lines.clear()  # the heading above the rule
            self.close()
        elif body.startswith(_CODE_LINES):
            self.close()
            self._to_blank = True
        elif body.startswith(_NO_TEXT) or _TYPED.match(body):
            self.close()
        elif body.startswith(".. "):
            self.close()
            directive = _PROSE_DIRECTIVE.match(body)
            if directive is None:
                self._left_out = indent
            else:
                self._begin(body[directive.end() :], indent, hanging=True)
        elif item := _ITEM.match(body):
            self.close()
            self._begin(body[item.end() :], indent, hanging=True)
        elif self._goes_on(body, indent):
            self._lines.append(body)
        else:
            self.close()
            self._begin(body, indent)

    def _begin(self, body: str, indent: int, hanging: bool = False) -> None:
        """Begin a paragraph, or the description of a name, without that name."""
        described = _DESCRIBED.match(body)
        text = body[described.end() :] if described else body
        self._lines = [text] if text else []
        self._start = self._indent = indent
        self._hanging = hanging or described is not None

    def _goes_on(self, body: str, indent: int) -> bool:
        """Whether a line belongs to the paragraph that is open."""
        if not self._lines or (self._hanging and indent == self._start and _DESCRIBED.match(body)):
            return False
        if self._hanging and len(self._lines) == 1 and indent > self._start:
            self._indent = indent  # of items, the second line says how deep the rest stands
        return indent == self._indent


_RULE = re.compile(r"([-=~^\"'`*+#:._])\1{2,}|[-=+ |]{3,}")
"""What underlines a heading, and what a table is drawn of."""

_CODE_LINES = (">>>", "In [", "$ ")
_NO_TEXT = ("|", "#", "<", "+-")

_TYPED = re.compile(r"[`'\w*.,\\ -]{1,60} :(?: |$)")
"""``name : type``, on a line of its own."""

_DESCRIBED = re.compile(
    r"`{0,2}\*{0,2}[A-Za-z_][\w.]*`{0,2}(?:, ?`{0,2}\*{0,2}\w+`{0,2})*"
    r"(?: ?\((?:[^()]|\([^()]*\))*\))?(?::| --?) +(?=\S)"
)
"""``name (type): `` and ``name: ``, before what it means."""

_ITEM = re.compile(r"(?:[-*+\u2022]|\(?\d{1,2}[.)]|\(?[a-z]\)|[:@][a-z]\w*(?: [^:]*)?:) +(?=\S)")
"""What stands before an item of a list or of a list of fields."""

_PROSE_DIRECTIVE = re.compile(
    r"\.\. (?:(?:note|warning|tip|hint|important|caution|attention|seealso|topic)::"
    r"|(?:version(?:added|changed)|deprecated):: *v?[\d.]*) *"
)

_MARKED = re.compile(r"[`*[]")
_MARKUP = (
    (re.compile(r"!?\[([^][]*)\](?:\([^()\s]*\)|\[[^][]*\])"), r"\1"),  # [text](target), [text][1]
    (re.compile(r":[a-z][\w:+-]*:`~(?:[\w.]*\.)?(\w+(?:\(\))?)`"), r"\1"),  # :role:`~a.b.name`
    (re.compile(r"(?::[a-z][\w:+-]*:)?`([^`<>]+?)\s*<[^<>`]*>`_{0,2}"), r"\1"),  # `text <target>`_
    (re.compile(r"(?::[a-z][\w:+-]*:)?(`+)!?([^`]+)\1_{0,2}"), r"\2"),  # `text`, ``text``
    (re.compile(r" ?\[[\w#*]+\]_"), ""),  # [1]_
    # *text*, **text**
    (re.compile(r"(?<![\w*])(\*{1,2})(?=[\w\"'(])([^*]+?)(?<=[\w\"').:])\1(?![\w*])"), r"\2"),
)

_BEGINNING = re.compile(r"[\"'\u201c\u2018(\[]*[A-Z]")
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
