"""Values that nobody expects, and one change to a value, a text or bytes."""

import copy
import json
import random
from typing import Any

TEXTS = (
    *("", " ", "\t", "\n", "a", "true", "null", "nan", "-1", "1e999", "0x10", "2024-99-99", "mean"),
    *("[MASK]", "[MASK] [CLS]", "\0", "\ud800", "\u200b", "\u202e", "é", "中文", "😀", "a" * 5000),
    *("../../etc/passwd", "/dev/null", "%s", "{", "}", "<<", "*a", "&a b", "!!timestamp x", "~"),
    *("none", "auto", "bert", "attention", "linear", "words", "[]", "{}", "[1, 2]", "{kind: x}"),
)

NUMBERS = (
    *(0, 1, -1, 2, 3, 7, 8, 64, 255, 256, 65_535, 65_536, 10**6, 10**9, 10**12, 10**18, 2**63),
    *(-(2**63), 10**30, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, -0.1, 1e-300, 1e300, 1e-9),
    *(float("nan"), float("inf"), float("-inf")),
)


def junk(draw: random.Random, depth: int = 3) -> Any:
    """Return any value that JSON or YAML can hold."""
    kind = draw.randrange(12 if depth else 8)
    if kind < 4:
        return draw.choice(NUMBERS)
    if kind < 7:
        return draw.choice(TEXTS)
    if kind == 7:
        return draw.choice((None, True, False))
    if kind < 10:
        return [junk(draw, depth - 1) for _ in range(draw.randrange(4))]
    if kind == 10:
        return {draw.choice(TEXTS): junk(draw, depth - 1) for _ in range(draw.randrange(4))}
    return nested(draw)


def nested(draw: random.Random) -> Any:
    """Return lists or mappings inside one another."""
    value: Any = 1
    for _ in range(draw.choice((20, 60, 90, 150, 400))):
        value = [value] if draw.random() < 0.5 else {"a": value}
    return value


def as_json(value: Any) -> str:
    """Return a value as JSON, however many digits or levels it has."""
    try:
        return json.dumps(value)
    except (RecursionError, ValueError):
        return "[" * 100_000


def as_yaml(value: Any) -> str:
    """Return a value as YAML on one line, which JSON nearly is."""
    text = as_json(value)
    return {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}.get(text, text)


def changed(draw: random.Random, value: Any) -> Any:
    """Return a copy of plain data with one change somewhere in it."""
    whole = copy.deepcopy(value)
    place, key = _any_place(draw, whole)
    if place is None:
        return junk(draw)
    act = draw.randrange(10)
    if act == 0 and isinstance(place, dict):
        del place[key]
    elif act == 1 and isinstance(place, dict):
        place[draw.choice(TEXTS)] = junk(draw)
    elif act == 2 and isinstance(place, dict):
        place[draw.choice(sorted(map(str, place)))] = place[key]
    elif act == 3 and isinstance(place, list):
        place.insert(draw.randrange(len(place) + 1), copy.deepcopy(place[key]))
    elif act == 4 and isinstance(place[key], int | float) and not isinstance(place[key], bool):
        place[key] = draw.choice((place[key] + 1, place[key] - 1, -place[key], place[key] * 1000))
    else:
        place[key] = junk(draw)
    return whole


def _any_place(draw: random.Random, whole: Any) -> tuple[Any, Any]:
    """Return a container inside a value, and a key of it; None where there is none."""
    place = whole
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return None, None
        key = draw.choice(keys)
        inside = place[key]
        if not isinstance(inside, dict | list) or not inside or draw.random() < 0.2:
            return place, key
        place = inside


def changed_text(draw: random.Random, text: str) -> str:
    """Return a text with one change somewhere in it."""
    lines = text.split("\n")
    line = draw.randrange(len(lines))
    place = draw.randrange(len(text) + 1)
    act = draw.randrange(9)
    if act == 0:
        return text[:place] + draw.choice(TEXTS) + text[place:]
    if act == 1:
        return text[:place] + text[place + draw.randrange(1, 20) :]
    if act == 2:
        return "\n".join([*lines[:line], *lines[line + 1 :]])
    if act == 3:
        return "\n".join([*lines[: line + 1], *lines[line:]])
    if act == 4:
        return text[:place]
    if act == 5:
        return "\n".join([*lines[:line], as_json(junk(draw)), *lines[line + 1 :]])
    if act == 6:
        return text.replace(draw.choice(text) if text else "a", draw.choice(TEXTS[:30]))
    if act == 7:
        return text[:place] + draw.choice("\t\n\r\0\"'{}[],:;|#&*!%@`\\") + text[place + 1 :]
    words = text.split(" ")
    words[draw.randrange(len(words))] = as_yaml(junk(draw))
    return " ".join(words)


def changed_bytes(draw: random.Random, content: bytes) -> bytes:
    """Return bytes with one change somewhere in them."""
    place = draw.randrange(len(content) + 1)
    act = draw.randrange(5)
    if act == 0:
        return content[:place]
    if act == 1:
        return content[:place] + draw.randbytes(draw.randrange(1, 9)) + content[place:]
    if act == 2:
        return content[:place] + draw.randbytes(draw.randrange(1, 9)) + content[place + 8 :]
    if act == 3:
        return content + content[place:]
    return content[:place] + content[place + draw.randrange(1, 9) :]
