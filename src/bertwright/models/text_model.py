"""A model with its tokenizer: embeddings, masked-token predictions, generated text and scores."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from bertwright.core.config import InferencePrecision, did_you_mean, to_user_error
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.encoder.encoder import Encoder
from bertwright.models.generation.config import GenerationConfig
from bertwright.models.generation.generate import GenerationLanguages, generate
from bertwright.models.generation.sampling import GeneratedText
from bertwright.models.inference import inference_encoder
from bertwright.models.late_chunking import ChunkEncoder, TextChunks
from bertwright.models.layer_selection import LayerReduction, LayerSelection, select_layers
from bertwright.models.model import Model
from bertwright.models.retrieval_encoder import DenseEncoder, RetrievalEncoder
from bertwright.models.saving import save_model
from bertwright.models.scoring.likelihood import log_likelihoods, pseudo_log_likelihoods
from bertwright.models.scoring.mask_predictions import (
    TokenPrediction,
    encode_masked,
    predict_masked_tokens,
)
from bertwright.models.scoring.masked_states import final_objective
from bertwright.models.text_batches import (
    BATCH_TOKENS,
    INT8_BATCH_TOKENS,
    TextBatch,
    add_special_tokens,
    text_batches,
)
from bertwright.modules.inference.int8_linear import int8_is_fast
from bertwright.modules.sentence_pooling import pool_sentences
from bertwright.modules.token_tensors import TokenInfo
from bertwright.modules.vector_projection import VectorProjection
from bertwright.recipes import Pooling
from bertwright.runtime.finite import require_finite_outputs
from bertwright.runtime.matmul_throughput import default_precision
from bertwright.runtime.process import default_device

FloatMatrix = NDArray[np.float32]


class TextModel:
    """A trained model with its tokenizer. Do not change its weights after the first use.

    ``precision`` is by default bfloat16 if the device multiplies it natively, else float32.
    ``int8`` quantises the encoder's weight matrices and their inputs, and runs on the CPU. Errors:
    UserError for another precision, and for int8 on an unsupported processor.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, precision: InferencePrecision | None = None
    ) -> None:
        if precision not in (None, *get_args(InferencePrecision)):
            choices = ", ".join(get_args(InferencePrecision))
            raise UserError(f"unknown precision {precision!r}: choose one of {choices}")
        self.device = torch.device("cpu") if precision == "int8" else default_device()
        self.model = model.to(self.device).eval()
        self.tokenizer = tokenizer
        self.model.restrict_to_vocabulary(tokenizer)
        self.precision: InferencePrecision = precision or default_precision(self.device)
        if self.precision == "int8" and not int8_is_fast():
            raise UserError(
                "int8 needs an x86 processor with AVX2 or later: leave the precision out"
            )
        self._cached_encoder: Encoder | None = None

    def save(self, folder: str | Path) -> None:
        """Write the model folder."""
        save_model(Path(folder), self.model, self.tokenizer)

    @torch.inference_mode()
    def encode(
        self,
        texts: str | Sequence[str],
        layers: str = "last",
        mix: LayerReduction = "concat",
        language: str | None = None,
    ) -> list[FloatMatrix]:
        """Return the hidden states (tokens, D) of every text, special tokens included.

        ``layers`` and ``mix`` are as in :meth:`embed`. ``language`` is the language of the texts,
        for an encoder with language embeddings; None means its first language.
        """
        texts = _as_list(texts)
        result: list[FloatMatrix] = [np.empty((0, 0), np.float32)] * len(texts)
        selection = select_layers(layers, mix, self.model.recipe.encoder.hidden_widths)
        for batch in self._batches(self.encode_ids(texts), language):
            states = self.hidden_states(selection, batch).float().cpu().numpy()
            for row, index in enumerate(batch.indices):
                result[index] = states[row, : batch.lengths[row]]
        return result

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: Pooling | None = None,
        normalise: bool = False,
        layers: str = "last",
        mix: LayerReduction = "concat",
        language: str | None = None,
    ) -> FloatMatrix:
        """Return one vector per text, (N, D) float32.

        ``pooling`` is the ``mean`` over tokens or ``cls``, the start token; None for the recipe's
        setting. A projection of the recipe's ``vectors`` is applied to the last layer only.
        ``layers`` is ``last``, a number (0 is the embeddings), ``5-8``, ``2,4``,
        ``last-4`` or ``all``; ``mix`` combines several layers by ``concat``, ``sum`` or ``mean``.
        ``language`` is as in :meth:`encode`.
        """
        sequences = self.encode_ids(_as_list(texts))
        return self.embed_ids(sequences, pooling, normalise, layers, mix, language)

    def embed_ids(
        self,
        sequences: Sequence[Sequence[int]],
        pooling: Pooling | None = None,
        normalise: bool = False,
        layers: str = "last",
        mix: LayerReduction = "concat",
        language: str | None = None,
    ) -> FloatMatrix:
        """Return one vector per sequence of token ids with special tokens; see :meth:`embed`."""
        if pooling not in (None, "mean", "cls"):
            raise UserError(f"unknown pooling {pooling!r}: choose mean or cls")
        selection = select_layers(layers, mix, self.model.recipe.encoder.hidden_widths)
        vectors: FloatMatrix | None = None
        for batch in self._batches(sequences, language):
            pooled = self.text_vectors(selection, batch, pooling)
            if normalise:
                pooled = torch.nn.functional.normalize(pooled, dim=-1)
            if vectors is None:
                vectors = np.empty((len(sequences), pooled.shape[1]), np.float32)
            vectors[batch.indices] = require_finite_outputs(pooled.cpu()).numpy()
        if vectors is None:
            return np.empty((0, self.vector_width(selection, pooling)), np.float32)
        return vectors

    def embed_chunks(
        self,
        texts: str | Sequence[str],
        max_tokens: int,
        pooling: Pooling | None = None,
        normalise: bool = False,
        layers: str = "last",
        mix: LayerReduction = "concat",
        language: str | None = None,
        prompt: str = "",
    ) -> list[TextChunks]:
        """Return a vector for each part of each text, of at most ``max_tokens`` tokens.

        A text is encoded as a whole, and the hidden states of every part are averaged, so a vector
        also depends on the text around its part. The ``prompt`` stands before each text and belongs
        to its first part. The other arguments are as in :meth:`embed`, which a text of a single
        part equals. Errors: UserError for a model that pools its start token.
        """
        self.require_chunk_pooling(pooling)
        selection = select_layers(layers, mix, self.model.recipe.encoder.hidden_widths)
        chunks = self.chunk_encoder(max_tokens, prompt).encode(
            _as_list(texts),
            lambda sequences: self._batches(sequences, language),
            lambda batch: require_finite_outputs(self.hidden_states(selection, batch)),
            selection.width,
        )
        projection = self._projection(selection)

        def finish(means: FloatMatrix) -> FloatMatrix:
            vectors = torch.from_numpy(means)
            if projection is not None:
                vectors = projection(vectors.to(self.device)).cpu()
            return (torch.nn.functional.normalize(vectors) if normalise else vectors).numpy()

        with torch.inference_mode():
            return [replace(part, vectors=finish(part.vectors)) for part in chunks]

    def chunk_encoder(self, max_tokens: int, prompt: str = "") -> ChunkEncoder:
        """Return the encoder of the parts of texts, of at most ``max_tokens`` tokens."""
        self.require_text_tokenizer("late chunking")
        return ChunkEncoder(
            self.tokenizer, self.model.recipe.assembly, max_tokens, self.max_length, prompt
        )

    def fill_mask(
        self, text: str, top_k: int = 5, language: str | None = None
    ) -> list[list[TokenPrediction]]:
        """Return the best predictions for every masked position of a text, in float32.

        A masked position is ``[MASK]`` or the tokenizer's mask token. ``language`` is as in
        :meth:`encode`.
        """
        return self.fill_mask_ids(self.encode_masked(text), top_k, language)

    def encode_masked(self, text: str) -> list[int]:
        """Return the token ids of a text with masks, special tokens included.

        Errors: UserError if the model does not predict masked tokens, the text has no masks, or a
        mask is beyond the maximum length.
        """
        self.require_lm_head("fill-mask")
        if not self.is_masked_lm:
            raise UserError(
                f"fill-mask needs a masked language model, and {self.model.recipe.name} predicts "
                f"next tokens: use generate or score"
            )
        self._require_known_items(text)
        return encode_masked(self.model, self.tokenizer, text)

    def fill_mask_ids(
        self, token_ids: Sequence[int], top_k: int = 5, language: str | None = None
    ) -> list[list[TokenPrediction]]:
        """Return predictions for the token ids of :meth:`encode_masked`; see :meth:`fill_mask`."""
        language_id = self.language_id(language)
        return predict_masked_tokens(self.model, self.tokenizer, token_ids, top_k, language_id)

    def generate(
        self,
        prompts: str | Sequence[str],
        *,
        num_samples: int = 1,
        objective: str | None = None,
        language: str | None = None,
        target_language: str | None = None,
        **settings: Any,
    ) -> list[GeneratedText]:
        """Return ``num_samples`` continuations of every prompt, in order, computed in float32.

        ``settings`` are fields of :class:`~bertwright.models.generation.config.GenerationConfig`:
        ``max_new_tokens`` (64), ``temperature`` (1; 0 is greedy), ``top_k``, ``top_p``,
        ``repetition_penalty``, ``stop``, ``sweeps``, ``num_beams``, ``length_penalty`` and
        ``seed``. With several beams, the samples are the best finished beams. Samples depend only
        on the seed, the prompt and the sample number. ``objective`` selects an objective of the
        recipe. ``language`` applies to the prompts, ``target_language`` to a decoder's output.

        Errors: UserError if the model cannot generate, a prompt is too long, or a setting is
        invalid.
        """
        try:
            config = GenerationConfig.model_validate(settings)
        except ValidationError as error:
            raise to_user_error(error, "generate") from None
        languages = GenerationLanguages(
            self.language_id(language), self.language_id(target_language)
        )
        return generate(
            self.model, self.tokenizer, _as_list(prompts), config, num_samples, objective, languages
        )

    def score(self, texts: str | Sequence[str], language: str | None = None) -> list[float]:
        """Return the log-likelihood of every text, in nats, computed in float32.

        For a causal model, it is the sum of the log-probabilities of all tokens given those before
        them. For other models it is the pseudo-log-likelihood: each token is masked in turn,
        together with the later tokens of its word (Kauf and Ivanova 2023). ``language`` is as in
        :meth:`encode`.
        """
        self.require_lm_head("score")
        scores = log_likelihoods if self.is_causal else pseudo_log_likelihoods
        return scores(self.model, self.tokenizer, _as_list(texts), self.language_id(language))

    def retrieval_encoder(self) -> RetrievalEncoder:
        """Return the encoder of texts and queries for a search index: by default :meth:`embed`.

        It has the prompts, the scaling and the truncation of the recipe.
        """
        return DenseEncoder(self)

    def record(self, *patterns: str) -> AbstractContextManager[dict[str, Tensor]]:
        """Record values by tap name while texts are encoded; see ``Encoder.record``."""
        return self.model.record(*patterns)

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[None]:
        """Replace values by tap name; see ``Encoder.replace``."""
        return self.model.replace(pattern, function)

    @torch.inference_mode()
    def hidden_states(
        self, layers: LayerSelection, batch: TextBatch, output_positions: Tensor | None = None
    ) -> Tensor:
        """Return hidden states (B, L, width), or (M, width) at flat ``output_positions`` (M,).

        Inner layers, and calls with active hooks, use the float32 encoder, because faster copies
        do not support hooks.
        """
        is_fast = self.model.encoder.taps.is_idle and layers.is_output(self.model.encoder)
        encoder = self._inference_encoder() if is_fast else self.model.encoder
        return layers.hidden_states(
            encoder, batch.token_ids, batch.token_info, output_positions=output_positions
        )

    @torch.inference_mode()
    def text_vectors(
        self, layers: LayerSelection, batch: TextBatch, pooling: Pooling | None
    ) -> Tensor:
        """Return the vectors (B, D) float32 of the texts of a batch."""
        pooled = pool_sentences(
            self.hidden_states(layers, batch),
            batch.token_info.document_ids,
            pooling or self.model.recipe.vectors.pooling,
            self.model.recipe.assembly.ends_with_start_token,
        )
        projection = self._projection(layers)
        return pooled if projection is None else projection(pooled)

    def vector_width(self, layers: LayerSelection, pooling: Pooling | None) -> int:
        """Return D of :meth:`text_vectors`."""
        is_output = layers.is_output(self.model.encoder)
        return self.model.recipe.vector_width if is_output else layers.width

    def require_chunk_pooling(self, pooling: Pooling | None) -> None:
        """Raise UserError unless texts are pooled by mean, as chunks are."""
        if (pooling or self.model.recipe.vectors.pooling) != "mean":
            raise UserError(
                "the vector of a chunk is the mean over its tokens, and pooling cls reads the "
                "start token of a text: choose pooling mean, or embed without chunks"
            )

    def _projection(self, layers: LayerSelection) -> VectorProjection | None:
        """Return the projection of vectors that are pooled from these layers."""
        return self.model.vector_projection if layers.is_output(self.model.encoder) else None

    @property
    def is_causal(self) -> bool:
        """Return whether the last training phase has a causal objective."""
        return final_objective(self.model, "causal") is not None

    @property
    def max_length(self) -> int | None:
        """Return the maximum sequence length in tokens; None if unlimited."""
        limits = (self.model.recipe.vectors.longest, self.model.encoder.max_length)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def batch_tokens(self) -> int:
        """Return the number of tokens of a batch."""
        return INT8_BATCH_TOKENS if self.precision == "int8" else BATCH_TOKENS

    @property
    def has_lm_head(self) -> bool:
        """Return whether hidden states of the encoder predict tokens, not only of a decoder."""
        if self.model.output is None:
            return False
        return any(
            o.capabilities.predicts_tokens and not o.capabilities.uses_decoder
            for o in self.model.recipe.objectives.values()
        )

    @property
    def is_masked_lm(self) -> bool:
        """Return whether the model predicts masked tokens."""
        has_masked_lm = final_objective(self.model, "masked") is not None
        return self.has_lm_head and (has_masked_lm or not self.is_causal)

    def require_lm_head(self, command: str) -> None:
        """Raise UserError unless the encoder's hidden states predict tokens."""
        if self.model.output is None:
            raise UserError(
                f"{command} needs a model with an output over the vocabulary; this has none"
            )
        if not self.has_lm_head:
            raise UserError(
                f"{command} needs an encoder that predicts tokens, and in "
                f"{self.model.recipe.name} the decoder does: use generate"
            )

    def require_text_tokenizer(self, command: str) -> None:
        """Raise UserError if the tokens are items, so that any text would be unknown."""
        if self.tokenizer.kind == "items":
            raise UserError(
                f"{command} reads text, and {self.model.recipe.name} knows items: use evaluate or "
                f"fill-mask"
            )

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of texts, without special tokens or truncation.

        Errors: UserError for unknown items.
        """
        for text in texts:
            self._require_known_items(text)
        return self.tokenizer.encode_batch(list(texts))

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return token ids with special tokens, truncated to :attr:`max_length`."""
        specials, assembly = self.tokenizer.special_tokens, self.model.recipe.assembly
        return [
            add_special_tokens(ids, specials, self.max_length, assembly)
            for ids in self.tokenize(texts)
        ]

    def num_truncated(self, texts: Sequence[str]) -> int:
        """Return how many of the texts are longer than :attr:`max_length`, and truncated."""
        limit = self.max_length
        if limit is None:
            return 0
        return sum(len(token_ids) > limit - 2 for token_ids in self.tokenize(texts))

    def _require_known_items(self, text: str) -> None:
        if self.tokenizer.kind != "items":
            return
        for item in text.replace("[MASK]", " ").split():
            if self.tokenizer.encode(item) == [self.tokenizer.special_tokens.unknown]:
                raise UserError(
                    f"{self.model.recipe.name} knows no item {item!r}: use the items of its "
                    f"training data, with _ for each space in a name"
                )

    def _batches(
        self, sequences: Sequence[Sequence[int]], language: str | None = None
    ) -> Iterator[TextBatch]:
        pad, budget = self.tokenizer.special_tokens.pad, self.batch_tokens
        for batch in text_batches(sequences, pad, self.device, batch_tokens=budget):
            token_info = self._with_language(batch.token_info, batch.token_ids, language)
            yield replace(batch, token_info=token_info)

    def _with_language(
        self, token_info: TokenInfo, token_ids: Tensor, language: str | None
    ) -> TokenInfo:
        return token_info.with_language(token_ids, self.language_id(language))

    def language_id(self, language: str | None) -> int | None:
        """Return the index of a language embedding; UserError for an unknown language."""
        if language is None:
            return None
        languages = self.model.recipe.encoder.embeddings.languages
        if not languages:
            raise UserError("the encoder has no language embeddings: leave --language out")
        if language not in languages:
            raise UserError(
                f"the encoder has no embedding for the language {language!r}"
                f"{did_you_mean(language, languages)}"
            )
        return languages.index(language)

    def _inference_encoder(self) -> Encoder:
        if self._cached_encoder is None:
            self._cached_encoder = inference_encoder(
                self.model.encoder, self.precision, self.device
            )
        return self._cached_encoder


def _as_list(texts: str | Sequence[Any]) -> list[str]:
    items: list[Any] = [texts] if isinstance(texts, str) else list(texts)
    if invalid := [text for text in items if not isinstance(text, str)]:
        raise UserError(f"texts must be strings, and {invalid[0]!r} is not")
    return items
