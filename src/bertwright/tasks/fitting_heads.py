"""Which head suits an encoder and an answer: the usual one, what is stated of it, and what cannot
be."""

from collections.abc import Sequence
from itertools import islice
from typing import Literal

from bertwright.axes import Settings
from bertwright.encoder.visibility import is_by_halves, is_causal
from bertwright.objectives import ReplacedToken
from bertwright.objectives.output import OutputChoice
from bertwright.objectives.sentence_relation import PairQuestion
from bertwright.recipes import Recipe
from bertwright.tasks.adaptation import Adaptation
from bertwright.tasks.answers.answer import Answer
from bertwright.tasks.apart import can_keep_apart, check_apart
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.head_parts import HeadMix
from bertwright.tasks.heads import BiLstm, Dense, HeadChoice, LayersSaid, Plain, Pooler, Transformed
from bertwright.tasks.reading_out import ReadOut


class HeadChanges(Settings):
    """What is stated of a head whose kind is the usual one."""

    read: ReadOut | None = None
    layers: LayersSaid | None = None
    mix: HeadMix | None = None


FROZEN_LAYERS = "last-4"
"""What is read of an encoder that stays as it is: side by side the best features of BERT (Devlin et
al. 2019, table 7)."""


def head_for(
    stated: HeadChoice | HeadChanges | None,
    recipe: Recipe,
    answer: Answer,
    tuned: FineTuned | None = None,
    frozen: Literal["texts", "pairs"] | None = None,
) -> HeadChoice:
    """The head that is stated, whole or in part, for this answer.

    What is not stated is as in the model that goes on, where that was ``tuned`` for an answer with
    the same usual head. ``frozen`` is what an encoder that stays as it is reads.
    """
    if isinstance(stated, HeadChoice):
        return stated

    def usual_for(answer: Answer) -> HeadChoice:
        own = None if frozen is None else _frozen_head(recipe, answer, pairs=frozen == "pairs")
        return own or default_head(recipe, answer)

    usual = usual_for(answer)
    if tuned is not None and usual_for(tuned.task.answer) == usual:
        own = tuned.net.choice
        usual = usual if check_head(own, answer, recipe.output) else own
    return (
        usual if stated is None else usual.changed("head", **stated.model_dump(exclude_none=True))
    )


def frozen_texts(
    adaptation: Adaptation, tasks: Sequence[tuple[Answer, Examples]]
) -> Literal["texts", "pairs"] | None:
    """Return what an encoder that stays as it is reads for all of these tasks; None where it does
    not stay."""
    if not adaptation.keeps_states:
        return None
    paired = (
        isinstance(example, Example) and example.second is not None
        for _, examples in tasks
        for example in islice(examples, 1)
    )
    can = all(check_apart("concat", answer) is None for answer, _ in tasks)
    return "pairs" if can and all(paired) else "texts"


def _frozen_head(recipe: Recipe, answer: Answer, pairs: bool) -> HeadChoice | None:
    """Return the head for features of an encoder that stays as it is, which is linear: its mean
    over each text, of a pair with their distance and their product, as nothing has taught the
    encoder to compare two texts in one sequence."""
    if answer.own_kind() in ("cloze", "closeness"):
        return None
    if answer.reads == "places":
        # Of a question all tokens of its text are read, which four layers make too large to keep.
        return Plain(read="places", layers=FROZEN_LAYERS if answer.labelled else "last")
    if pairs and can_keep_apart(recipe):
        return Plain(read="apart", layers=FROZEN_LAYERS)
    causal = is_causal(recipe.encoder.visibility) and not is_by_halves(recipe.encoder.visibility)
    return Plain(read="last" if causal else "mean", layers=FROZEN_LAYERS)


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
