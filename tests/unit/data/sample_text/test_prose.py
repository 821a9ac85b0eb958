"""Extraction of prose from documentation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertwright.data.sample_text.prose import MIN_WORDS, is_prose, prose_paragraphs, remove_markup

NUMPYDOC = """Fit the model to the data that is given.

    The lines of a paragraph are
    joined into one of them.

    Parameters
    ----------
    rate : float, optional
        How fast the model is
        made to learn.
    seed, other_seed : int
        Where the numbers that look like chance come from.

    .. versionadded:: 1.2

    .. note:: The order of the rows
       does not matter to this.

    .. code-block:: python

       There is a sentence in this code.

       And there is one after a blank line.

    Examples
    --------
    >>> fit(x)
    This is the output of the example above.

    The text goes on after the example::

        This is code and not a sentence.

    ===== =====
    There is a table in this text.
    ===== =====

    References
    ----------
    .. [1] A Person, "The title of a very long book", 1987.
    """

GOOGLE = """Read the file from its beginning to its end.

    Args:
        path (Path, optional): The file that is to be read.
        mode: Whether it is read as text
            or as the bytes that it has.

    Returns:
        The text of the file, without the end of its last line.
    """

MARKDOWN = """# The title of this page is long enough to be a sentence.

A [link](https://example.org) in the **middle** of a sentence.

```
This is code and not a sentence.
```

* This is the first of the items of a list.
* This is the second, which goes
  on in the line after it.
1. And this is one that has a number.
"""

FIELDS = """Open the door for the guests of the house.

:param door: The door that is to be opened
    for all of them.
:raises ValueError: If the door is not one of this house.
"""


@pytest.mark.parametrize(
    ("documentation", "expected"),
    [
        (
            NUMPYDOC,
            [
                "Fit the model to the data that is given.",
                "The lines of a paragraph are joined into one of them.",
                "How fast the model is made to learn.",
                "Where the numbers that look like chance come from.",
                "The order of the rows does not matter to this.",
            ],
        ),
        (
            GOOGLE,
            [
                "Read the file from its beginning to its end.",
                "The file that is to be read.",
                "Whether it is read as text or as the bytes that it has.",
                "The text of the file, without the end of its last line.",
            ],
        ),
        (
            MARKDOWN,
            [
                "A link in the middle of a sentence.",
                "This is the first of the items of a list.",
                "This is the second, which goes on in the line after it.",
                "And this is one that has a number.",
            ],
        ),
        (
            FIELDS,
            [
                "Open the door for the guests of the house.",
                "The door that is to be opened for all of them.",
                "If the door is not one of this house.",
            ],
        ),
    ],
    ids=["numpydoc", "google", "markdown", "fields"],
)
def test_documentation_styles(documentation: str, expected: list[str]) -> None:
    assert prose_paragraphs(documentation) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("See ``open`` and `close`.", "See open and close."),
        ("Use :func:`~torch.nn.relu` or :class:`Model`.", "Use relu or Model."),
        ("Read :ref:`the guide <guide>` and `this page <https://a.b>`_.", "Read the guide and "),
        ("It is *very* good, says **one** [1]_.", "It is very good, says one."),
        ("Takes *args and **kwargs.", "Takes *args and **kwargs."),
        ("Two  spaces\tand a tab.", "Two spaces and a tab."),
    ],
)
def test_markup_is_removed(marked: str, expected: str) -> None:
    assert remove_markup(marked).startswith(expected)


@pytest.mark.parametrize(
    "paragraph",
    [
        "Too short to be kept.",
        "The value is written as {name} in the text of it.",
        "A B C D E F G H I J K L.",
        "The 12 of 13 and 14 or 15 to 16 by 17 at 18.",
        "Gur Mra bs Clguba vf n cbrz nobhg gur ynathntr.",
        "The text has a NUL \0 in the middle of it.",
        "The half of a pair \ud800 is in the middle of it.",
    ],
)
def test_non_prose_is_rejected(paragraph: str) -> None:
    assert not is_prose(paragraph)


def test_paragraphs_are_complete_sentences() -> None:
    text = "The first sentence is a whole one. The second ends with code:\n\n    x = 1"
    assert prose_paragraphs(text) == ["The first sentence is a whole one."]
    assert prose_paragraphs("and so it goes on from the line above. It is not kept.") == []


@given(st.text(st.sampled_from("A word. \n\t`*:>-=_|[](){}#.~é\u2028\0"), max_size=200))
def test_prose_lines_of_any_text(text: str) -> None:
    for paragraph in prose_paragraphs(text):
        assert paragraph == " ".join(paragraph.split())
        assert paragraph.isprintable()
        assert len(paragraph.split()) >= MIN_WORDS
