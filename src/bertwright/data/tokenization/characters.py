"""Character classes for regular expressions."""

IDEOGRAPHS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\U0002f800-\U0002fa1f"
)
"""Ideographs; BERT treats each as a separate word."""

ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
"""Printable ASCII characters except letters, digits and the space."""

WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
r"""Unicode White_Space. Python's ``\s`` also includes the separators \x1c to \x1f."""

PUNCTUATION = (
    ASCII_PUNCTUATION + "\u2010-\u2027\u2030-\u205e\u3001-\u3011\uff01-\uff0f\uff1a-\uff20"
)
"""ASCII punctuation, and the Unicode blocks with the punctuation of most scripts."""


def replace_lone_surrogates(text: str) -> str:
    """Replace each lone surrogate, which JSON allows and UTF-8 does not, by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
