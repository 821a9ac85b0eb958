"""Prune a model's vocabulary to the tokens in some texts."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice

import torch

from bertwright.compression.distillation.transfer.examples import example_texts
from bertwright.compression.vocabulary.resizing import with_tokenizer
from bertwright.core.errors import UserError
from bertwright.data.tokenization.pruning import prune_tokenizer
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.outputs.cloze import PAIR, ClozeOutput
from bertwright.tasks.outputs.text.generated import GeneratedOutput

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


def prune_vocabulary(
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
    tokenizer, kept_ids = prune_tokenizer(model.tokenizer, needed)
    kept = torch.tensor(kept_ids)
    return with_tokenizer(
        model, tokenizer, len(kept_ids), lambda _, tensor: tensor[kept.to(tensor.device)]
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
