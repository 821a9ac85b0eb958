"""Text that a decoder generates: translations, summaries, answers in words.

The pre-trained decoder and LM head are trained with teacher forcing: each token of the target is
predicted from the source and the target's earlier tokens. Predictions are generated token by token.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from bertwright.core.config import error_message
from bertwright.core.errors import UserError
from bertwright.models.generation.config import GenerationConfig
from bertwright.models.generation.generate import GenerationLanguages, generate_outputs
from bertwright.models.generation.sampling import GeneratedText
from bertwright.models.scoring.decoder_likelihood import target_log_likelihoods
from bertwright.models.text_model import TextModel
from bertwright.tasks.example_encoder import ExampleEncoder, TaskSequence
from bertwright.tasks.formats.examples import Example, Examples
from bertwright.tasks.formats.labels import LabelKind, parse_text
from bertwright.tasks.metrics.generated_text import (
    TEXT_METRICS,
    ScoredText,
    require_metric_library,
)
from bertwright.tasks.outputs.output_decoder import OutputDecoder, SequenceOutputs
from bertwright.tasks.outputs.output_type import (
    MetricFunction,
    OutputLevel,
    OutputType,
    location_of,
)
from bertwright.tasks.outputs.prediction import PredictingModel, Prediction

TEXT_FIELD, PAIR_FIELD = "{text}", "{pair}"

_TEMPLATE_PARTS = re.compile(r"(\{text\}|\{pair\})")


@dataclass(frozen=True)
class GeneratedDecoder(OutputDecoder):
    """The decoder of :class:`GeneratedOutput`."""

    config: "GeneratedOutput"

    @property
    def num_outputs(self) -> int:
        """0: the hidden states are the source of the decoder."""
        return 0

    def encode(
        self, example_encoder: ExampleEncoder, examples: Sequence[Example]
    ) -> list[TaskSequence]:
        """Encode sources and, where known, targets; a truncated target has no end token."""
        tokenizer, limit = example_encoder.tokenizer, self.config.max_target_length
        sequences = example_encoder.encode([self._source(example) for example in examples])
        targets = [self.target_text(example) for example in examples]
        ids_of_targets = tokenizer.encode_batch([target or "" for target in targets])
        result: list[TaskSequence] = []
        for sequence, target, ids in zip(sequences, targets, ids_of_targets, strict=True):
            target_ids = () if target is None else (*ids, tokenizer.special_tokens.end)
            excess = max(0, len(target_ids) - limit)
            result.append(
                replace(
                    sequence,
                    target_ids=target_ids[:limit],
                    num_truncated=sequence.num_truncated + excess,
                )
            )
        return result

    def output_length(self, sequence: TaskSequence) -> int:
        """Return the number of target tokens."""
        return len(sequence.target_ids)

    def targets(self, sequences: Sequence[TaskSequence], example: Example) -> list[int]:
        return [token_id for sequence in sequences for token_id in sequence.target_ids]

    def target_text(self, example: Example) -> str | None:
        """Return the text to generate for an example; None if unknown."""
        reference = self.config.reference(example)
        return None if reference is None else str(reference)

    def predict(
        self, model: PredictingModel, sequences: Sequence[TaskSequence], examples: Examples
    ) -> list[Prediction]:
        """Generate a text for every example; score the references that are known."""
        config, languages = self.config, self.config.language_ids(model)
        sources = [sequence.token_ids for sequence in sequences]
        outputs = generate_outputs(
            model.model, model.tokenizer, sources, config.generation, languages
        )
        scored = [n for n, sequence in enumerate(sequences) if sequence.target_ids]
        likelihoods = target_log_likelihoods(
            model.model,
            model.tokenizer.special_tokens,
            [sources[n] for n in scored],
            [sequences[n].target_ids for n in scored],
            languages,
        )
        by_sequence = dict(zip(scored, likelihoods, strict=True))
        return [
            self._prediction(model, output, by_sequence.get(n, 0.0), len(sequences[n].target_ids))
            for n, output in enumerate(outputs)
        ]

    def decode_example(self, example: Any, parts: Sequence[SequenceOutputs]) -> Prediction:
        raise TypeError("a text is generated token by token: call predict")

    def value_of(self, text: str, model: PredictingModel) -> str | float:
        """Return the prediction that a generated text stands for."""
        return text

    def _prediction(
        self, model: PredictingModel, output: GeneratedText, log_likelihood: float, num_tokens: int
    ) -> Prediction:
        text = output.text.strip()
        return Prediction(
            self.value_of(text, model),
            exp(sum(output.log_probabilities)),
            scored_text=ScoredText(text, log_likelihood, num_tokens),
        )

    def _source(self, example: Example) -> Example:
        """Return an example whose only text is the input of the encoder."""
        template, pair = self.config.template, example.pair
        if (PAIR_FIELD in template) != (pair is not None):
            problem = "a second text, which it leaves out" if pair else "no second text"
            raise UserError(
                f"{location_of(example)}: output_type.template is {template!r}, and there is "
                f"{problem}: change the template, or the columns"
            )
        texts = {TEXT_FIELD: example.text, PAIR_FIELD: pair or ""}
        parts = (texts.get(part, part) for part in _TEMPLATE_PARTS.split(template))
        return Example("".join(parts), location=example.location)


class GeneratedOutput(OutputType):
    """The settings common to outputs that a decoder generates.

    ``template`` is the source: it contains ``{text}``, ``{pair}`` for text pairs, and any other
    words, such as ``translate English to German: {text}`` (Raffel et al. 2020). Targets are
    truncated to ``max_target_length`` tokens. The further fields generate predictions, as in
    ``generate``; by default, greedily. ``language`` and ``target_language`` are for models with
    language embeddings.
    """

    template: str = TEXT_FIELD
    max_target_length: int = Field(default=128, ge=2, le=1 << 16)
    num_beams: int = 1
    length_penalty: float = 1.0
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0
    language: str | None = None
    target_language: str | None = None
    level: ClassVar[OutputLevel] = "text"
    decoder_type: ClassVar[type[OutputDecoder]] = GeneratedDecoder

    @field_validator("template")
    @classmethod
    def _has_text(cls, template: str) -> str:
        if template.count(TEXT_FIELD) != 1 or template.count(PAIR_FIELD) > 1:
            raise ValueError(
                f"must contain {TEXT_FIELD} once, and {PAIR_FIELD} at most once: {template!r}"
            )
        return template

    @model_validator(mode="after")
    def _can_generate(self) -> Self:
        try:
            _ = self.generation
        except ValidationError as error:
            raise ValueError(error_message(error.errors()[0], "")) from None
        return self

    @property
    def generation(self) -> GenerationConfig:
        """The settings of generation."""
        return GenerationConfig(
            max_new_tokens=self.max_target_length,
            num_beams=self.num_beams,
            length_penalty=self.length_penalty,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            repetition_penalty=self.repetition_penalty,
            seed=self.seed,
        )

    def require_metric_libraries(self, metrics: Sequence[str]) -> None:
        """Raise MissingExtra if the library of a metric is not installed."""

    def language_ids(self, model: TextModel | PredictingModel) -> GenerationLanguages:
        """Return the language ids of sources and targets."""
        return GenerationLanguages(
            model.language_id(self.language), model.language_id(self.target_language)
        )


TextMetric = Literal["bleu", "rouge-l", "rouge-1", "rouge-2", "inverse-perplexity", "exact"]

REPORTED_METRICS: Mapping[str, tuple[str, ...]] = {
    "rouge-l": ("rouge-1", "rouge-2"),
    "rouge-1": ("rouge-2", "rouge-l"),
    "rouge-2": ("rouge-1", "rouge-l"),
}
"""Further metrics to report beside a main metric."""


class TextOutput(GeneratedOutput):
    """A text of any content, such as a translation or a summary.

    ``main_metric`` selects the best epoch: ``bleu``, ``rouge-l``, ``rouge-1``, ``rouge-2``,
    ``inverse-perplexity`` (exp of minus the loss) or ``exact`` (the fraction of equal texts).
    """

    kind: Literal["text"] = "text"
    main_metric: TextMetric = "bleu"
    label_kind: ClassVar[LabelKind] = "text"
    metrics: ClassVar[Mapping[str, MetricFunction]] = TEXT_METRICS

    def default_metrics_for(self, labels: Sequence[str]) -> tuple[str, ...]:
        further = (*REPORTED_METRICS.get(self.main_metric, ()), "inverse-perplexity", "exact")
        return tuple(dict.fromkeys((self.main_metric, *further)))

    def require_metric_libraries(self, metrics: Sequence[str]) -> None:
        for name in metrics:
            require_metric_library(name)

    def reference(self, example: Example) -> str | None:
        return None if example.label is None else parse_text(location_of(example), example.label)

    def metric_inputs(
        self, examples: Sequence[Any], predictions: Sequence[Prediction], for_ranking: bool
    ) -> tuple[Sequence[Any], Sequence[Any]]:
        texts = [p.scored_text or ScoredText(str(p.value)) for p in predictions]
        return [self.reference(example) for example in examples], texts
