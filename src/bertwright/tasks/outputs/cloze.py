"""Classification by the word predicted at a ``[MASK]`` in a template around the text.

Every class has a word, and the output of the class starts from the word's output in the
language-model head (Schick and Schütze 2021). A masked language model can therefore classify
without training, and learns from few examples. Unlike in the paper, the outputs are then trained
independently of the embeddings.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, field_validator
from torch import nn

from bertwright.core.config import did_you_mean
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.models.text_model import TextModel
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.outputs.classification import ClassificationDecoder, ClassificationOutput
from bertwright.tasks.outputs.output_decoder import OutputDecoder
from bertwright.tasks.outputs.output_type import OutputLevel, location_of

TEXT, PAIR, MASK = "{text}", "{pair}", "[MASK]"

_TEMPLATE_PARTS = re.compile(r"(\{text\}|\{pair\}|\[MASK\])")


@dataclass(frozen=True)
class ClozeDecoder(ClassificationDecoder):
    """The decoder of :class:`ClozeOutput`."""

    config: "ClozeOutput"

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[Example]
    ) -> list[TaskSequence]:
        return [self._encode_example(example_encoder, n, e) for n, e in enumerate(examples)]

    def init_classifier(self, classifier: nn.Module, source: TextModel) -> None:
        """Initialise each output from the word of its class in the language-model head."""
        model = source.model
        source.require_lm_head("output type cloze")
        if not source.is_masked_lm:
            raise UserError(
                f"output type cloze needs a masked language model, and {model.recipe.name} is "
                f"causal: use prompt"
            )
        if not isinstance(model.output, LMHead):
            raise UserError(
                f"output type cloze needs one output per token, and {model.recipe.name} has an "
                f"adaptive softmax"
            )
        tokens = self._label_token_ids(source.tokenizer)
        weight, bias = model.output.weights_and_biases(torch.tensor(tokens), model.embedding_table)
        last: Any = classifier
        with torch.no_grad():
            last.weight.copy_(weight)
            last.bias.copy_(bias)

    def _label_token_ids(self, tokenizer: Tokenizer) -> list[int]:
        """Return a distinct token for every class."""
        words = self.config.words
        if unknown := next((label for label in words if label not in self.labels), None):
            raise UserError(
                f"output_type.words: no example has the label {unknown!r}"
                f"{did_you_mean(unknown, self.labels)}"
            )
        labels: dict[int, str] = {}
        for label in self.labels:
            token = self._label_token_id(tokenizer, label)
            if token in labels:
                raise UserError(
                    f"output_type.words: {labels[token]!r} and {label!r} share the token "
                    f"{tokenizer.id_to_token(token)!r}: give each label a different word"
                )
            labels[token] = label
        return list(labels)

    def _label_token_id(self, tokenizer: Tokenizer, label: str) -> int:
        word = self.config.label_word(label)
        # In byte-level vocabularies the token of a word includes the preceding space.
        tokens = tokenizer.encode(f" {word}")
        if len(tokens) != 1 or tokens[0] == tokenizer.special_tokens.unknown:
            raise UserError(
                f"output_type.words: {word!r} is not a single token of the vocabulary: give the "
                f"label {label!r} another word, as in output_type.words.{label}=good"
            )
        return tokens[0]

    def _encode_example(
        self, example_encoder: ExampleEncoder, example_index: int, example: Example
    ) -> TaskSequence:
        tokenizer, special = example_encoder.tokenizer, example_encoder.tokenizer.special_tokens
        template = self.config.template
        if PAIR in template and example.pair is None:
            raise UserError(f"output_type.template contains {PAIR}, but there is no second text")
        if PAIR not in template and example.pair is not None:
            raise UserError(
                f"{location_of(example)} has a second text, which output_type.template leaves out: "
                f"add {PAIR} to it"
            )
        texts: Mapping[str, str] = {TEXT: example.text, PAIR: example.pair or ""}
        parts = [part for part in _TEMPLATE_PARTS.split(template) if part]
        ids: list[list[int]] = []
        space = ""
        for part in parts:
            text = texts.get(part, part)
            if part == MASK:
                ids.append([special.mask])
                space = ""
                continue
            # The space before a text or a mask belongs to the text or mask.
            ids.append(tokenizer.encode(space + text.rstrip(" ")) if text.strip() else [])
            space = " " if text.endswith(" ") else ""
        truncatable = [n for n, part in enumerate(parts) if part in texts]
        num_fixed = sum(len(ids[n]) for n in range(len(ids)) if n not in truncatable)
        available = example_encoder.max_length - 2 - num_fixed
        num_truncated = _truncate_longest(ids, truncatable, available)
        joined = [token for part_ids in ids for token in part_ids]
        token_ids, segment_ids = example_encoder.join_texts([joined])
        # Searching for the mask token could find one inside a text.
        position = example_encoder.text_start + sum(map(len, ids[: parts.index(MASK)]))
        return TaskSequence(
            token_ids,
            example_index,
            segment_ids if example_encoder.has_segments else None,
            (position,),
            num_truncated=num_truncated,
        )


class ClozeOutput(ClassificationOutput):
    """One of several classes, by the word at the ``[MASK]`` of a template.

    ``template`` contains ``{text}``, ``{pair}`` for text pairs, and ``[MASK]`` once. ``words`` maps
    classes to words; by default a class is its own word.
    """

    kind: Literal["cloze"] = "cloze"  # type: ignore[assignment]
    template: str = "{text} It was [MASK]."
    words: dict[str, str] = Field(default_factory=dict[str, str])
    decoder_type: ClassVar[type[OutputDecoder]] = ClozeDecoder
    has_convex_loss: ClassVar[bool] = False
    level: ClassVar[OutputLevel] = "token"

    @field_validator("template")
    @classmethod
    def _one_mask(cls, template: str) -> str:
        if template.count(MASK) != 1 or TEXT not in template:
            raise ValueError(f"must contain {TEXT}, and {MASK} once: {template!r}")
        return template

    @field_validator("stride")
    @classmethod
    def _no_windows(cls, stride: int | None) -> int | None:
        if stride is not None:
            raise ValueError("a cloze has no windows: leave it out")
        return stride

    @property
    def can_use_stride(self) -> bool:
        return False

    def label_word(self, label: str) -> str:
        """Return the word of a class."""
        return self.words.get(label, label)


def _truncate_longest(ids: list[list[int]], truncatable: Sequence[int], max_tokens: int) -> int:
    """Truncate the longest texts in place until all fit; return the number of removed tokens."""
    before = sum(len(ids[n]) for n in truncatable)
    while sum(len(ids[n]) for n in truncatable) > max(max_tokens, 0):
        longest = max(truncatable, key=lambda n: len(ids[n]))
        excess = sum(len(ids[n]) for n in truncatable) - max(max_tokens, 0)
        others = max((len(ids[n]) for n in truncatable if n != longest), default=0)
        keep = max(len(ids[longest]) - excess, min(others, len(ids[longest]) - 1))
        del ids[longest][keep:]
    return before - sum(len(ids[n]) for n in truncatable)
