"""Random unexpected values, and random changes to a value, a text or bytes."""

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


def junk(rng: random.Random, depth: int = 3) -> Any:
    """Return a random value of JSON or YAML."""
    kind = rng.randrange(12 if depth else 8)
    if kind < 4:
        return rng.choice(NUMBERS)
    if kind < 7:
        return rng.choice(TEXTS)
    if kind == 7:
        return rng.choice((None, True, False))
    if kind < 10:
        return [junk(rng, depth - 1) for _ in range(rng.randrange(4))]
    if kind == 10:
        return {rng.choice(TEXTS): junk(rng, depth - 1) for _ in range(rng.randrange(4))}
    return nested(rng)


def nested(rng: random.Random) -> Any:
    """Return deeply nested lists or mappings."""
    value: Any = 1
    for _ in range(rng.choice((20, 60, 90, 150, 400))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def as_json(value: Any) -> str:
    """Return a value as JSON; an unclosed list where it cannot be written."""
    try:
        return json.dumps(value)
    except (RecursionError, ValueError):
        return "[" * 100_000


def as_yaml(value: Any) -> str:
    """Return a value as YAML on one line."""
    text = as_json(value)
    return {"NaN": ".nan", "Infinity": ".inf", "-Infinity": "-.inf"}.get(text, text)


def changed(rng: random.Random, value: Any) -> Any:
    """Return a copy of plain data with one random change."""
    root = copy.deepcopy(value)
    container, key = _random_container(rng, root)
    if container is None:
        return junk(rng)
    change = rng.randrange(10)
    if change == 0 and isinstance(container, dict):
        del container[key]
    elif change == 1 and isinstance(container, dict):
        container[rng.choice(TEXTS)] = junk(rng)
    elif change == 2 and isinstance(container, dict):
        container[rng.choice(sorted(map(str, container)))] = container[key]
    elif change == 3 and isinstance(container, list):
        container.insert(rng.randrange(len(container) + 1), copy.deepcopy(container[key]))
    elif (
        change == 4
        and isinstance(container[key], int | float)
        and not isinstance(container[key], bool)
    ):
        container[key] = rng.choice(
            (container[key] + 1, container[key] - 1, -container[key], container[key] * 1000)
        )
    else:
        container[key] = junk(rng)
    return root


def _random_container(rng: random.Random, root: Any) -> tuple[Any, Any]:
    """Return a random container inside a value and one of its keys, or None."""
    container = root
    while True:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        if not keys:
            return None, None
        key = rng.choice(keys)
        child = container[key]
        if not isinstance(child, dict | list) or not child or rng.random() < 0.2:
            return container, key
        container = child


def changed_text(rng: random.Random, text: str) -> str:
    """Return a text with one random change."""
    lines = text.split("\n")
    line = rng.randrange(len(lines))
    position = rng.randrange(len(text) + 1)
    change = rng.randrange(9)
    if change == 0:
        return text[:position] + rng.choice(TEXTS) + text[position:]
    if change == 1:
        return text[:position] + text[position + rng.randrange(1, 20) :]
    if change == 2:
        return "\n".join([*lines[:line], *lines[line + 1 :]])
    if change == 3:
        return "\n".join([*lines[: line + 1], *lines[line:]])
    if change == 4:
        return text[:position]
    if change == 5:
        return "\n".join([*lines[:line], as_json(junk(rng)), *lines[line + 1 :]])
    if change == 6:
        return text.replace(rng.choice(text) if text else "a", rng.choice(TEXTS[:30]))
    if change == 7:
        return text[:position] + rng.choice("\t\n\r\0\"'{}[],:;|#&*!%@`\\") + text[position + 1 :]
    words = text.split(" ")
    words[rng.randrange(len(words))] = as_yaml(junk(rng))
    return " ".join(words)


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return bytes with one random change."""
    position = rng.randrange(len(content) + 1)
    change = rng.randrange(5)
    if change == 0:
        return content[:position]
    if change == 1:
        return content[:position] + rng.randbytes(rng.randrange(1, 9)) + content[position:]
    if change == 2:
        return content[:position] + rng.randbytes(rng.randrange(1, 9)) + content[position + 8 :]
    if change == 3:
        return content + content[position:]
    return content[:position] + content[position + rng.randrange(1, 9) :]
