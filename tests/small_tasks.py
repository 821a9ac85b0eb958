"""Small tasks on made-up texts, each of which can be learned by heart."""

from bertwright.tasks.formats.examples import Example, TaggedWords

COLOURS, THINGS = ("red", "green", "blue", "brown"), ("bird", "house", "tree", "river")

TEXTS = [
    f"The {colour} {thing} is {how} and {other}"
    for colour in COLOURS
    for thing in THINGS
    for how, other in (("old", "unbelievably small"), ("new", "remarkably large"))
]

ENGLISH = " ".join(TEXTS).lower()


def classes() -> list[Example]:
    """Texts and whether they are of something old."""
    return [Example(text, label="old" if "old" in text else "new") for text in TEXTS]


def pairs() -> list[Example]:
    """Pairs of texts, and whether the second is of something old."""
    seconds = [TEXTS[(7 * number + 3) % len(TEXTS)] for number in range(len(TEXTS))]
    return [
        Example(first, second, "old" if "old" in second else "new")
        for first, second in zip(TEXTS, seconds, strict=True)
    ]


def numbers() -> list[Example]:
    """Texts with a number far from 0: which thing it is of."""
    return [Example(text, label=100.0 + 10 * THINGS.index(text.split()[2])) for text in TEXTS]


def tagged() -> list[TaggedWords]:
    """Words with their kind; a colour and its thing are a span."""
    kinds = dict.fromkeys(COLOURS, "B-THING") | dict.fromkeys(THINGS, "I-THING")
    sentences = [tuple(text.split()) for text in TEXTS]
    return [TaggedWords(words, tuple(kinds.get(w, "O") for w in words)) for words in sentences]
