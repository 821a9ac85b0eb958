"""Systems under equal conditions: the same sequences and batches for each."""

from bertwright.recipes.loading import Override
from bertwright.recipes.schema import Recipe


def equalised_recipe(
    system: str,
    size: str,
    tokenizer_kind: str,
    length: int,
    batch_tokens: int,
    *overrides: Override,
) -> Recipe:
    """Return a system in a size, with a common maximum length, batch size and tokenizer.

    Its phases keep their objectives, trained layers and growth, not their lengths and batch sizes.
    """
    recipe = Recipe.load(f"{system}-{size}")
    overridden = {"length": None, "batch": 1.0}
    phases = [{**phase.model_dump(mode="json"), **overridden} for phase in recipe.phases]
    common = {
        "assembly": {"length": min(length, recipe.assembly.length)},
        "phases": phases,
        "batch_tokens": batch_tokens,
        "text": {"tokenizer": {"kind": tokenizer_kind}},
    }
    return Recipe.load(f"{system}-{size}", common, *overrides)
