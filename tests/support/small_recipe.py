"""A recipe that trains in a moment."""

from bertwright.recipes import Recipe

CHANGES = (
    "encoder.width=32",
    "encoder.depth.layers=2",
    "encoder.mixer.head_width=16",
    "assembly.length=32",
    "batch_tokens=256",
    "precision=float32",
    "compile=false",
    "steps=20",
)

THREE_PHASES = (
    "objectives.causal={}",
    "phases=[{fraction: 0.5, objectives: {causal: {}}}, "
    "{fraction: 0.3, objectives: {masked: {shift: 1}}}, {fraction: 0.2, objectives: {masked: {}}}]",
)


def small(name: str = "modern", *changes: str) -> Recipe:
    """Return a recipe with two blocks of width 32 and eight sequences of length 32 per step.

    The modern one has a causal phase, a masked phase with shifted predictions, and a masked one.
    """
    phases = THREE_PHASES if name == "modern" else ()
    return Recipe.load(name, *CHANGES, *phases, *changes)


def stacking_recipe(*changes: str) -> Recipe:
    """Return a recipe whose stack grows from one block to two and four."""
    return Recipe.load(
        "stacking",
        *CHANGES,
        "encoder.depth.layers=4",
        "text.tokenizer.kind=wordpiece",
        "phases=[{fraction: 0.3, depth: 0.25}, {fraction: 0.3, depth: 0.5}, {fraction: 0.4}]",
        *changes,
    )
