"""Which head suits an encoder and an answer: the usual one, what is stated of it, and what cannot
be."""

from bertwright.axes import Settings
from bertwright.encoder.visibility import is_by_halves, is_causal
from bertwright.objectives import ReplacedToken
from bertwright.objectives.output import OutputChoice
from bertwright.objectives.sentence_relation import PairQuestion
from bertwright.recipes import Recipe
from bertwright.tasks.answers.answer import Answer
from bertwright.tasks.apart import check_apart
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.head_parts import HeadMix
from bertwright.tasks.heads import BiLstm, Dense, HeadChoice, LayersSaid, Plain, Pooler, Transformed
from bertwright.tasks.reading_out import ReadOut


class HeadChanges(Settings):
    """What is stated of a head whose kind is the usual one."""

    read: ReadOut | None = None
    layers: LayersSaid | None = None
    mix: HeadMix | None = None


def head_for(
    stated: HeadChoice | HeadChanges | None,
    recipe: Recipe,
    answer: Answer,
    tuned: FineTuned | None = None,
) -> HeadChoice:
    """The head that is stated, whole or in part, for this answer.

    What is not stated is as in the model that goes on, where that was ``tuned`` for an answer with
    the same usual head.
    """
    if isinstance(stated, HeadChoice):
        return stated
    usual = default_head(recipe, answer)
    if tuned is not None and default_head(recipe, tuned.task.answer) == usual:
        own = tuned.net.choice
        usual = usual if check_head(own, answer, recipe.output) else own
    return (
        usual if stated is None else usual.changed("head", **stated.model_dump(exclude_none=True))
    )


def default_head(recipe: Recipe, answer: Answer) -> HeadChoice:
    """The head with which the family of a recipe is usually fine-tuned.

    A causal encoder is read where it has read everything, one of two ways over the whole row. What
    is compared is read as the vectors of the recipe are. An encoder trained on pairs has a pooler,
    a discriminator GELU; a pre-norm encoder reads through the transform of its output, over the
    whole row, since nothing taught it to gather a text in its first place.
    """
    by_halves = is_by_halves(recipe.encoder.visibility)
    causal = is_causal(recipe.encoder.visibility)
    transforms = recipe.encoder.norm.first and recipe.output.transform and not by_halves
    if answer.own_kind() == "cloze":
        return Transformed(read="places") if recipe.output.transform else Plain(read="places")
    if answer.reads == "places":
        return Transformed(read="places") if transforms else Plain(read="places")
    if answer.own_kind() == "closeness":
        pooled = "first" if recipe.vectors.pooling == "cls" else "mean"
        return Plain(read="last" if causal and not by_halves else pooled)
    if by_halves:
        return Plain(read="mean")
    if causal:
        return Plain(read="last")
    if recipe.pooler or any(isinstance(o, PairQuestion) for o in recipe.objectives.values()):
        return Pooler()
    if any(isinstance(o, ReplacedToken) for o in recipe.objectives.values()):
        return Dense(activation="gelu")
    return Transformed(read="mean") if transforms else Dense()


def check_head(choice: HeadChoice, answer: Answer, output: OutputChoice) -> str | None:
    """What speaks against a head for this answer, in words."""
    if isinstance(choice, BiLstm) and answer.reads != "places":
        return "head.kind: bilstm reads the words of a row: choose another for whole texts"
    if (choice.read == "places") != (answer.reads == "places"):
        known = "first, last, mean, last-max-mean or apart"
        wanted = "places" if answer.reads == "places" else known
        return f"head.read: an answer of {answer.name} is read from {wanted}, not {choice.read}"
    if choice.read == "apart" and (wrong := check_apart(choice.mix, answer)):
        return wrong
    if isinstance(choice, BiLstm) and choice.read != "places":
        return "head.kind: bilstm reads the words of a row: choose another for whole texts"
    if answer.own_kind() == "closeness" and not isinstance(choice, Plain):
        return "head.kind: an answer of closeness is the state that is read: choose plain"
    if answer.own_kind() == "cloze" and isinstance(choice, Transformed) != bool(output.transform):
        return "head.kind: an answer of cloze has the head of the vocabulary: leave head out"
    if isinstance(choice, Transformed) and not output.transform:
        return "head.kind: transform needs a recipe whose output has a transform"
    return None
