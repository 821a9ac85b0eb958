"""What is known of stretches of a plain text, in a JSON file beside it.

Its places are characters of the whole file as it is read: with one character for every end of a
line. They are carried over to documents by counting those characters that are not white space,
which no cleaning takes away.
"""

from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bertwright.errors import UserError
from bertwright.files import json_value
from bertwright.text.annotations import among_solid, require_within, stated_annotations
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
        stated: Any = json_value(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is not a JSON file that can be read: {error}") from None
    known = stated_annotations(stated, str(path))
    places = deque(sorted({place for each in known for place in (each.start, each.stop)}))
    counted, solid, length = dict[int, int](), 0, 0
    for block in blocks:
        begin, length = length, length + len(block)
        while places and places[0] <= length:
            place = places.popleft()
            counted[place] = solid + num_solid(block[: place - begin])
        solid += num_solid(block)
    require_within(known, length, str(path))
    return among_solid(known, counted.__getitem__)


def num_solid(text: str) -> int:
    """How many characters are no white space."""
    return len("".join(text.split()))
