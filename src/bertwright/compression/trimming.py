"""A model of fewer pieces: those that some texts need. It says of these texts what it said."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bertwright.axes import explain
from bertwright.compression.transfer.texts import written_in
from bertwright.errors import UserError
from bertwright.model.folder import fill, filled
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.answers.cloze import PAIR, ClozeAnswer
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Tokenizer
from bertwright.text.trimming import trimmed

AT_ONCE = 1024
"""Texts that are cut together."""


def counted(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[int]:
    """How often each piece occurs in texts.

    Errors: UserError where none does.
    """
    texts, counts = iter(texts), Counter[int]()
    while some := list(islice(texts, AT_ONCE)):
        for ids in tokenizer.encode_batch(some):
            counts.update(ids)
    if not counts:
        raise UserError("the texts hold no piece: name others")
    return counts


def trim(model: TextModel, texts: Iterable[str] = (), examples: Examples = ()) -> TextModel:
    """A model, fine-tuned or not, without the pieces that no text needs, and no example of the task
    of one that is fine-tuned.

    Its answers to text that is cut into pieces which are left are those of the whole model, and
    its logits those of the whole for these pieces.

    Errors: UserError for texts without a piece, and for a model that does not have a row for each,
    as a graph has not.
    """
    read = chain(texts, (text for example in examples for text in written_in(example)))
    needed = set(counted(model.tokenizer, read))
    if isinstance(model, FineTuned):
        needed |= _in_rows(model, [*examples, *_without_words(model)])
    tokenizer, former = trimmed(model.tokenizer, needed)
    kept, size = torch.tensor(former), len(former)
    if isinstance(model, FineTuned):
        net = model.net
        small = TaskModel.empty(_recipe(net.recipe, size), size, net.plan, net.adaptation)
        fill(small, _rows(net, small, kept, net.vocabulary_size), net.recipe.name)
        told = model.task, model.maker.length, model.precision, model.temperature
        return FineTuned(small, tokenizer, *told)
    whole = model.model
    recipe = _recipe(whole.recipe, size)
    with torch.device("meta"):
        wanted = Model(recipe, size)
    weights = _rows(whole, wanted, kept, whole.vocabulary_size)
    return TextModel(filled(recipe, size, weights, recipe.name), tokenizer, model.precision)


def _in_rows(model: FineTuned, examples: Examples) -> set[int]:
    """The pieces that a task reads its examples as, which may be others than those of their texts:
    a template stands around them, or a space before an option."""
    return {
        piece
        for begin in range(0, len(examples), AT_ONCE)
        for row in model.answering.rows(model.maker, examples[begin : begin + AT_ONCE])
        for piece in row.pieces
    }


def _without_words(model: FineTuned) -> list[Example]:
    """An example of nothing but the template around it, where the task has one."""
    answer = model.task.answer
    if not isinstance(answer, ClozeAnswer):
        return []
    return [Example("", "" if PAIR in answer.template else None)]


def _recipe(recipe: Recipe, size: int) -> Recipe:
    """That of a model with so many pieces; UserError where these are too few."""
    wanted = recipe.text.tokenizer
    try:
        tokenizer = type(wanted).model_validate({**dict(wanted), "size": size})
    except ValidationError as error:
        raise explain(error, "the pieces that texts need") from None
    text = recipe.text.model_copy(update={"tokenizer": tokenizer})
    return recipe.model_copy(update={"text": text})


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Each once, however many parts share it."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _rows(whole: nn.Module, small: nn.Module, kept: Tensor, size: int) -> dict[str, Tensor]:
    """The weights that a smaller model has: of what has a row for each of so many pieces, those
    that are kept.

    Errors: UserError where pieces are numbered in a way that does not stay what it is.
    """
    wanted, found = _tensors(small), dict[str, Tensor]()
    for name, tensor in _tensors(whole).items():
        own = wanted.get(name)
        if own is None or tensor.shape != own.shape:
            if own is None or len(tensor) != size:
                raise UserError(
                    f"{name} has no row for each piece: a model that orders its pieces by how "
                    f"frequent they are cannot be trimmed"
                )
            tensor = tensor.detach()[kept.to(tensor.device)]
        found[name] = tensor
    return found
