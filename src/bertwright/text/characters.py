"""Classes of characters, written as the inside of a regular expression's brackets."""

IDEOGRAPHS = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0002a6df\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b820-\U0002ceaf"
    "\U0002f800-\U0002fa1f"
)
"""The ideographs that BERT sets apart as words of their own."""

ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
"""Every printable ASCII character that is neither a letter, a digit nor the space."""

WHITE_SPACE = "\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
r"""Unicode White_Space. Python's ``\s`` also holds the separators \x1c to \x1f."""

PUNCTUATION = (
    ASCII_PUNCTUATION + "\u2010-\u2027\u2030-\u205e\u3001-\u3011\uff01-\uff0f\uff1a-\uff20"
)
"""Punctuation of ASCII and of the blocks where that of most scripts lies."""


def healed(text: str) -> str:
    """The text with a replacement character for each half of a surrogate pair, which JSON can spell
    and nothing can write."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
