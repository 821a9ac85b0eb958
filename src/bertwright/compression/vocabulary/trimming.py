"""Trim a model's vocabulary to the tokens in some texts."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from bertwright.compression.distillation.transfer.examples import example_texts
from bertwright.compression.pruning.structured import unique_weights
from bertwright.core.config import to_user_error
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.data.tokenization.trimming import trim_tokenizer
from bertwright.models.model import Model
from bertwright.models.saving import build_empty, load_tensors, model_from_tensors
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.outputs.cloze import PAIR, ClozeOutput
from bertwright.tasks.outputs.generated import GeneratedOutput
from bertwright.tasks.task_model import TaskModel

BATCH_SIZE = 1024
"""Number of texts tokenized at once."""


def count_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> Counter[int]:
    """Count the tokens of texts; raise UserError if there are none."""
    texts, counts = iter(texts), Counter[int]()
    while batch := list(islice(texts, BATCH_SIZE)):
        for ids in tokenizer.encode_batch(batch):
            counts.update(ids)
    if not counts:
        raise UserError("the texts contain no tokens: name others")
    return counts


def trim_vocabulary(
    model: TextModel, texts: Iterable[str] = (), examples: Examples = ()
) -> TextModel:
    """Return a model without the tokens that neither the texts nor the task's examples need.

    For text made of the kept tokens, its outputs are the same as the original's; so are its logits
    for these tokens.

    Raises UserError for texts without tokens, and for a model that does not have a row per token,
    such as an ONNX graph.
    """
    all_texts = chain(texts, (text for example in examples for text in example_texts(example)))
    needed = set(count_tokens(model.tokenizer, all_texts))
    if isinstance(model, FineTunedModel):
        needed |= _token_ids_of(model, [*examples, *_template_examples(model)])
    tokenizer, kept_ids = trim_tokenizer(model.tokenizer, needed)
    kept, size = torch.tensor(kept_ids), len(kept_ids)
    original = model.task_model if isinstance(model, FineTunedModel) else model.model
    recipe = _with_vocab_size(original.recipe, size)
    if isinstance(model, FineTunedModel):
        net = model.task_model
        trimmed = build_empty(TaskModel, recipe, size, net.head_spec, net.adaptation)
        load_tensors(trimmed, _trimmed_weights(net, trimmed, kept, net.vocab_size), recipe.name)
        settings = model.task, model.example_encoder.max_length, model.precision, model.temperature
        return FineTunedModel(trimmed, tokenizer, *settings)
    with torch.device("meta"):
        empty = Model(recipe, size)
    weights = _trimmed_weights(original, empty, kept, original.vocab_size)
    return TextModel(
        model_from_tensors(recipe, size, weights, recipe.name), tokenizer, model.precision
    )


def _token_ids_of(model: FineTunedModel, examples: Examples) -> set[int]:
    """Return the tokens of encoded examples, including templates and spaces before options."""
    return {
        token_id
        for start in range(0, len(examples), BATCH_SIZE)
        for sequence in model.output_decoder.encode(
            model.example_encoder, examples[start : start + BATCH_SIZE]
        )
        for token_id in (*sequence.token_ids, *sequence.target_ids)
    }


def _template_examples(model: FineTunedModel) -> list[Example]:
    """Return an example with only the template, if the task has one."""
    output_type = model.task.output_type
    if isinstance(output_type, GeneratedOutput):
        pair = "" if PAIR in output_type.template else None
        return [Example("", pair), *(Example("", pair, label) for label in model.task.labels)]
    if not isinstance(output_type, ClozeOutput):
        return []
    return [Example("", "" if PAIR in output_type.template else None)]


def _with_vocab_size(recipe: Recipe, vocab_size: int) -> Recipe:
    """Return a recipe with this vocabulary size; raise UserError if it is too small."""
    config = recipe.text.tokenizer
    try:
        tokenizer = type(config).model_validate({**dict(config), "vocab_size": vocab_size})
    except ValidationError as error:
        raise to_user_error(error, "the trimmed vocabulary") from None
    text = recipe.text.model_copy(update={"tokenizer": tokenizer})
    return recipe.model_copy(update={"text": text})


def _trimmed_weights(
    original: nn.Module, trimmed: nn.Module, kept_ids: Tensor, vocab_size: int
) -> dict[str, Tensor]:
    """Return the weights of a trimmed model: tables with a row per token get only the kept rows.

    Raises UserError for a model whose token ids have a meaning that trimming would change.
    """
    expected, weights = unique_weights(trimmed), dict[str, Tensor]()
    for name, tensor in unique_weights(original).items():
        target = expected.get(name)
        if target is None or tensor.shape != target.shape:
            if target is None or len(tensor) != vocab_size:
                raise UserError(
                    f"{name} has no row per token: a model that orders its tokens by frequency "
                    f"cannot be trimmed"
                )
            tensor = tensor[kept_ids.to(tensor.device)]
        weights[name] = tensor
    return weights
