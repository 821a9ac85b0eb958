"""Where sentences end: a few rules, the same on every machine.

A sentence ends at a line end; at a full stop, question or exclamation mark (and the quotes and
brackets that close after it) before white space and a beginning that is not lower case; and after
an ideographic full stop. A full stop does not end a sentence after a title, a single initial, or an
abbreviation that something must follow.
"""

import re
from collections.abc import Iterator

_IDEOGRAPHIC_STOPS = "\u3002\uff01\uff1f\uff61"
_CLOSING = "\"'\u201d\u2019\u00bb)\\]"
_IDEOGRAPHIC_CLOSING = "\u300d\u300f\u201d\u2019\uff09\u3011\u300b"
_OPENING = "\"'\u201c\u2018\u00ab(\\[\u00bf\u00a1*_"

# Every branch begins with a character of its own: the engine then skips from one to the next.
_END = re.compile(
    rf"[.!?\u2026\u061f\u06d4\u0964\u0965]+[{_CLOSING}]*+(?=[ \t]++[{_OPENING}]*+([^a-z\s]))"
    rf"|[{_IDEOGRAPHIC_STOPS}]+[{_IDEOGRAPHIC_CLOSING}]*+(?=\S)"
    r"|\n(?<=\S\n)"
)

_BEFORE_A_NAME = re.compile(
    r"mr|mrs|ms|dr|prof|gen|col|capt|lt|sgt|cmdr|adm|gov|sen|rep|hon|rev|fr|st|mt|ft|messrs|mme"
    r"|mlle|vs|cf|viz|al|e\.g|i\.e|ed|eds|dept|univ|approx|ca|resp",
    re.IGNORECASE,
)
_BEFORE_A_NUMBER = re.compile(
    r"nos?|figs?|eqs?|sect?|vols?|ch|chap|pp?|art|op"
    r"|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION = 8
_INITIALS = re.compile(r"(?:[A-Z]\.)+[A-Z]|[A-HJ-Z]")
_FIRST_WORDS = re.compile(
    r"[ \t]+(?:The|A|An|In|On|At|It|He|She|They|We|You|I|This|That|These|Those|There|But|And|As|If"
    r"|For|When|While|After|Before|Since|However|His|Her|Its|Their|Our|My|By|From|With|To)\b"
)


def sentence_ends(text: str) -> Iterator[int]:
    """Where each sentence but the last ends, in characters; white space begins the next one."""
    for match in _END.finditer(text):
        start, end = match.span()
        following: str = match.group(1) or ""
        if text[start] == "\n":
            yield start
        elif following.islower():
            continue
        elif text[start] != "." or end - start > 1 or not _abbreviates(text, start, following):
            yield end


def may_end_without_space(text: str) -> bool:
    """Whether some sentence may end where no white space follows."""
    return any(stop in text for stop in _IDEOGRAPHIC_STOPS)


def _abbreviates(text: str, stop: int, following: str) -> bool:
    """Whether a full stop belongs to the word before it and to that alone."""
    space = text.rfind(" ", max(0, stop - _LONGEST_ABBREVIATION), stop)
    if space < 0 and stop > _LONGEST_ABBREVIATION:
        return False
    word = text[space + 1 : stop].lstrip("\"'\u201c\u2018([\n")
    if _INITIALS.fullmatch(word):
        return len(word) == 1 or not _FIRST_WORDS.match(text, stop + 1)
    if following.isdigit() and _BEFORE_A_NUMBER.fullmatch(word):
        return True
    return _BEFORE_A_NAME.fullmatch(word) is not None
