"""Systems side by side: the same rows and batches for each, whatever its paper trained with."""

from bertwright.recipes.loading import Change
from bertwright.recipes.schema import Recipe


def evened(
    system: str, size: str, tokenizer_kind: str, length: int, batch_tokens: int, *changes: Change
) -> Recipe:
    """A system in a size, on rows of at most ``length`` places and steps of so many, in pieces of
    this kind; its phases keep what they ask, train and grow, not rows or batches of their own."""
    whole = Recipe.load(f"{system}-{size}")
    own = {"length": None, "batch": 1.0}
    phases = [{**phase.model_dump(mode="json"), **own} for phase in whole.phases]
    even = {
        "assembly": {"length": min(length, whole.assembly.length)},
        "phases": phases,
        "batch_tokens": batch_tokens,
        "text": {"tokenizer": {"kind": tokenizer_kind}},
    }
    return Recipe.load(f"{system}-{size}", even, *changes)
