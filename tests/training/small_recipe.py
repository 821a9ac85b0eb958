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
    "phases=[{share: 0.5, objectives: {causal: {}}}, {share: 0.3, objectives: {masked: {shift: 1}}}"
    ", {share: 0.2, objectives: {masked: {}}}]",
)


def small(name: str = "modern", *changes: str) -> Recipe:
    """A system with two blocks of width 32 and rows of 32 places, 8 of them in a step; modern has
    a causal phase, one in which the place before answers, and a masked one."""
    phases = THREE_PHASES if name == "modern" else ()
    return Recipe.load(name, *CHANGES, *phases, *changes)
