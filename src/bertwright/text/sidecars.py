"""What is known of stretches of a plain text, in a JSON file beside it.

Its places are characters of the whole file as it is read: with one character for every end of a
line. They are carried over to documents by counting those characters that are not white space,
which no cleaning takes away.
"""

import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from bertwright.text.annotations import annotations_of, is_nothing
from bertwright.text.documents import Annotation


def sidecar_of(name: str) -> Path:
    """The file that stands beside a text: ``story.txt.json`` beside ``story.txt``."""
    return Path(f"{name}.json")


def stated_beside(name: str, blocks: Iterable[str]) -> list[Annotation]:
    """What stands beside a text, given all of its blocks; places are counted without white space.

    Errors: UserError for a file that is no list of stretches within the text.
    """
    path = sidecar_of(name)
    try:
        stated: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a JSON file that can be read: {error}") from None
    known = annotations_of(stated, sys.maxsize, str(path))
    places = deque(sorted({place for each in known for place in (each.start, each.stop)}))
    counted, solid, length = dict[int, int](), 0, 0
    for block in blocks:
        begin, length = length, length + len(block)
        while places and places[0] <= length:
            place = places.popleft()
            counted[place] = solid + num_solid(block[: place - begin])
        solid += num_solid(block)
    annotations_of(stated, length, str(path))
    found = (Annotation(counted[a.start], counted[a.stop], a.label) for a in known)
    return sorted((a for a in found if a.start < a.stop), key=lambda a: (a.start, -a.stop))


def num_solid(text: str) -> int:
    """How many characters are no white space."""
    return len("".join(text.split()))


def annotated(
    texts: Iterable[str], known: Sequence[Annotation]
) -> Iterator[tuple[str, tuple[Annotation, ...]]]:
    """Every text with what is known of it, in its own characters; what lies in two is dropped."""
    if not known:
        yield from ((text, ()) for text in texts)
        return
    before, next_known = 0, 0
    for text in texts:
        here = [n for n, character in enumerate(text) if not is_nothing(character)]
        after, own = before + len(here), list[Annotation]()
        while next_known < len(known) and known[next_known].start < after:
            each = known[next_known]
            next_known += 1
            if before <= each.start and each.stop <= after:
                start, stop = here[each.start - before], here[each.stop - 1 - before] + 1
                own.append(Annotation(start, stop, each.label))
        yield text, tuple(own)
        before = after
