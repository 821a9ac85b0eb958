"""The lectures and surveys whose claims the studies ask about, and the systems each tells of."""

LECTURES: dict[str, str] = {
    "S0": "Lobacheva, BERT model, its analysis and modifications",
    "S1": "BERT, RoBERTa and GPT-2, a lecture",
    "S2": "BERTology, notes of a course",
    "S3": "Applied Deep Learning 2022, More BERT",
    "S4": "Khrylchenko 2021, Transfer learning, ELMo, BERT and modifications",
}

_TOLD: dict[str, str] = {
    "S0": "5 7 9 10 11 12 13 14 15 16 17 18 19 23 29 31",
    "S1": "3 4 5 6 7 9 18 19 20 27",
    "S2": "7 8 10 12 14 29 30",
    "S3": "7 8 9 10 15 18 19 20 23",
    "S4": "1 2 3 4 5 6 7 9 12 15 17 18 19 20 22 23 24 25 26 27 28 34 35 36 37",
}


def lectures_of(systems: str) -> list[str]:
    """The keys of the lectures that tell of a system, ``A9``, or of one of ``A35, A36``."""
    asked = set(systems.replace("A", "").split(", "))
    return [name for name, told in _TOLD.items() if asked.intersection(told.split())]
