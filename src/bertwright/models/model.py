"""The model of a recipe: encoder, decoder, LM head and objective heads."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from bertwright.batches.batch import Batch
from bertwright.batches.targets import Targets
from bertwright.data.tokenization.character_ids import character_ids, token_character_ids
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.encoder.decoder import Decoder, RecurrentDecoder
from bertwright.encoder.encoder import Encoder
from bertwright.models.memory import require_memory
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import Visibility
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.embeddings.spelling import SpelledEmbedding
from bertwright.modules.initialisation import initialise
from bertwright.modules.token_tensors import TokenInfo
from bertwright.objectives.generator import Generator
from bertwright.objectives.heads.lm_head import LMHead
from bertwright.objectives.model_output import DeviceTargets, GeneratorInput, Loss, ModelOutput
from bertwright.objectives.objective import HeadContext, Objective, combined_visibility
from bertwright.recipes import Recipe


class DeviceBatch:
    """A batch as tensors on a device.

    ``token_ids`` (B, L) is int64; ``teacher_batch`` holds the same texts tokenized for a teacher.
    """

    def __init__(self, batch: Batch, device: torch.device | str = "cpu") -> None:
        self.token_ids = torch.from_numpy(batch.token_ids).to(device, torch.int64)
        self.token_info = TokenInfo.from_arrays(batch.token_info, self.token_ids)
        self.targets = {n: _targets_to_device(t, device) for n, t in batch.targets.items()}
        self.num_tokens = batch.num_tokens
        self.first_sequence = batch.first_sequence
        self.continues_previous = batch.continues_previous
        self.teacher_batch = (
            None if batch.teacher_batch is None else DeviceBatch(batch.teacher_batch, device)
        )


def _targets_to_device(targets: Targets, device: torch.device | str) -> DeviceTargets:
    weights = targets.weights
    all_ones = bool((weights == 1.0).all())
    return DeviceTargets(
        torch.from_numpy(targets.positions).to(device),
        torch.from_numpy(targets.labels).to(device),
        None if all_ones else torch.from_numpy(weights).to(device),
        float(weights.sum()),
        {
            name: torch.from_numpy(values).to(device)
            for name, values in targets.extra_inputs.items()
        },
    )


class Model(nn.Module):
    """The encoder of a recipe with its decoder, LM head and objective heads, if any.

    ``heads`` maps objective names to heads. ``distillation_loss`` holds parameters that are trained
    with the model but not saved.
    """

    def __init__(self, recipe: Recipe, vocab_size: int) -> None:
        super().__init__()
        self.recipe = recipe
        self.vocab_size = vocab_size
        self.encoder = Encoder(recipe.encoder, vocab_size)
        predicts_tokens = any(o.capabilities.predicts_tokens for o in recipe.objectives.values())
        self.output: LMHead | None = (
            recipe.output.build(recipe.encoder, vocab_size) if predicts_tokens else None
        )
        if self.output is not None:
            self.output.tie_weights(self.encoder.embeddings)
        width = recipe.encoder.width
        pooler = nn.Linear(width, width) if recipe.pooler else None
        shared_pooler = pooler if recipe.pooler == "shared" else None
        context = HeadContext(
            recipe.encoder,
            self.encoder.embeddings,
            vocab_size,
            recipe.vector_width,
            shared_pooler,
        )
        heads = {name: o.build_head(context) for name, o in recipe.objectives.items()}
        self.heads = nn.ModuleDict({n: head for n, head in heads.items() if head is not None})
        self.decoder: Decoder | RecurrentDecoder | None = (
            recipe.decoder.build(recipe.encoder, self.encoder) if recipe.decoder else None
        )
        self.pooler = pooler
        projection = recipe.vectors.projection
        self.vector_projection = (
            None if projection is None else projection.build(recipe.encoder.hidden_widths[-1])
        )
        self.distillation_loss: nn.Module | None = None

    @staticmethod
    def build(recipe: Recipe, vocab_size: int, tokenizer: Tokenizer | None = None) -> "Model":
        """Return a model initialised from the recipe's seed.

        Embeddings from characters take the spelling of each token from ``tokenizer``; without one,
        they spell token ids in digits. Errors: UserError if the model is larger than this machine's
        memory.
        """
        with torch.device("meta"):
            require_memory(Model(recipe, vocab_size), f"recipe {recipe.name}")
        model = Model(recipe, vocab_size)
        initialise(model, recipe.encoder.initialisation, recipe.seed)
        if tokenizer is not None:
            model.restrict_to_vocabulary(tokenizer)
        table = model.encoder.embeddings.tokens
        if isinstance(table, SpelledEmbedding):
            table.set_spelling(
                character_ids([str(token_id) for token_id in range(vocab_size)], table.longest)
                if tokenizer is None
                else token_character_ids(tokenizer, vocab_size, table.longest)
            )
        return model

    @property
    def memory_length(self) -> int:
        """Return the number of earlier positions that a sequence can attend to, as memory."""
        return self.recipe.encoder.memory_length

    @property
    def embedding_table(self) -> Tensor:
        """Return the token table (V, E), or the table that token embeddings are computed from."""
        return self.encoder.embeddings.table

    def losses(
        self,
        batch: DeviceBatch,
        objectives: Mapping[str, Objective],
        dropout_rng: DropoutRng | None = None,
        memory: Memory | None = None,
    ) -> dict[str, Loss]:
        """Return the loss of each objective in the batch by name.

        Generator objectives run first and replace tokens; all others share one encoder pass.
        ``memory`` is updated for the next batch.
        """
        active = [objectives[name] for name in batch.targets]
        visibility = self.encoder.visibility & combined_visibility(active)
        heads = dict(self.heads.items())
        token_ids, losses = batch.token_ids, dict[str, Loss]()
        first_index = batch.first_sequence * token_ids.shape[1]
        for name, targets in batch.targets.items():
            if objectives[name].capabilities.is_generator:
                generator_input = GeneratorInput(
                    token_ids, batch.token_info, visibility, dropout_rng, first_index
                )
                token_ids, losses[name] = objectives[name].replace_tokens(
                    targets, generator_input, heads.get(name)
                )
        aux_outputs: dict[str, Tensor] = {}
        output_positions = _output_positions(batch, objectives)
        hidden_states = self.encoder(
            token_ids,
            batch.token_info,
            visibility,
            dropout_rng,
            memory=memory,
            aux_outputs=aux_outputs,
            output_positions=output_positions,
        )
        output = ModelOutput(
            token_ids,
            hidden_states,
            self.embedding_table,
            self.output,
            aux_outputs,
            batch.token_info,
            self.decoder,
            dropout_rng,
            output_positions,
            self.recipe.vectors.pooling,
            self.vector_projection,
        )
        for name, targets in batch.targets.items():
            if not objectives[name].capabilities.is_generator:
                losses[name] = objectives[name].compute_loss(targets, output, heads.get(name))
        return losses

    def forward(
        self,
        token_ids: Tensor,
        token_info: TokenInfo | None = None,
        visibility: Visibility | None = None,
        stop_after: int | None = None,
    ) -> Tensor:
        """Return the hidden states (B, L, D) of token ids (B, L) int64; see ``Encoder.forward``."""
        states: Tensor = self.encoder(token_ids, token_info, visibility, stop_after=stop_after)
        return states

    def logits(self, hidden_states: Tensor) -> Tensor:
        """Return logits (M, V) of hidden states (M, D); -inf for table rows without a token.

        If hidden states have a forward and a backward half, the forward half is used.
        """
        return self._lm_head().logits(self._forward_direction(hidden_states), self.embedding_table)

    def full_logits(self, hidden_states: Tensor) -> Tensor:
        """Return logits for every row of the embedding table, as Hugging Face models do."""
        return self._lm_head().full_logits(
            self._forward_direction(hidden_states), self.embedding_table
        )

    def restrict_to_vocabulary(self, tokenizer: Tokenizer) -> None:
        """Predict only the tokenizer's ids, as the embedding table may have more rows."""
        ids = torch.from_numpy(tokenizer.ids)
        for module in self.modules():
            if isinstance(module, LMHead):
                module.restrict_to_tokens(ids)

    def _lm_head(self) -> LMHead:
        assert self.output is not None, "this recipe has no output over the vocabulary"
        return self.output

    def _forward_direction(self, hidden_states: Tensor) -> Tensor:
        return hidden_states[..., : self.recipe.encoder.direction_width]

    def record(
        self, *patterns: str, output_gradients: bool = False
    ) -> AbstractContextManager[dict[str, Tensor]]:
        """Record values by tap name; see ``Encoder.record``."""
        return self.encoder.record(*patterns, output_gradients=output_gradients)

    def replace(
        self, pattern: str, function: Callable[[Tensor], Tensor]
    ) -> AbstractContextManager[Any]:
        """Replace values by tap name; see ``Encoder.replace``."""
        return self.encoder.replace(pattern, function)

    def compile_parts(self) -> None:
        """Compile the blocks, the embeddings and the LM heads with ``torch.compile``."""
        self.encoder.compile_parts()
        if self.decoder is not None:
            self.decoder.compile_parts()
        for part in (self.output, *self.heads.values()):
            if isinstance(part, LMHead | Generator):
                part.compile_parts()


def _output_positions(batch: DeviceBatch, objectives: Mapping[str, Objective]) -> Tensor | None:
    """Return the flat positions (M,) that objectives read; None if these are more than half."""
    positions: list[Tensor] = []
    for name, targets in batch.targets.items():
        if not objectives[name].capabilities.is_generator:
            output_positions = objectives[name].output_positions(targets)
            if output_positions is None:
                return None
            positions.append(output_positions)
    is_sparse = 2 * sum(map(len, positions)) < batch.token_ids.numel()
    return torch.cat(positions) if positions and is_sparse else None
