"""A small generator that replaces masked tokens in the encoder's input (Clark et al. 2020)."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from bertwright.batches.masking.corruption import Corruption, TokenReplacement
from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder
from bertwright.modules.dropout_rng import DropoutRng, uniform_for_step
from bertwright.modules.embeddings.embeddings import FactorisedEmbeddingsConfig
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.heads.lm_head import LMHead, TiedHeadConfig
from bertwright.objectives.masked import MaskingObjective
from bertwright.objectives.model_output import DeviceTargets, GeneratorInput, Loss
from bertwright.objectives.objective import HeadContext

SAMPLING_STREAM = 64
"""Random stream of the sampled tokens."""

DROPOUT_STREAM = 2000
"""Block index at which the generator's dropout starts; larger than any number of blocks."""


class GeneratorLM(MaskingObjective):
    """Mask tokens, predict them with a generator, and replace them with its samples.

    The generator is the encoder at ``width`` times its width, with ``layers`` blocks (None: the
    same number). It shares the embedding tables and their norm; it shares positions only if they
    are added to the tokens. Tokens are sampled from its softmax, without a gradient.
    """

    kind: Literal["generated"] = "generated"
    corruption: Corruption = TokenReplacement(mask=0.85, random=0.0, keep=0.15)
    width: float = Field(default=0.25, gt=0.0, le=64)
    layers: int | None = Field(default=None, ge=1, le=1_024)

    capabilities: ClassVar[Capabilities] = Capabilities(
        masks_input=True, uses_embedding_table=True, is_generator=True
    )

    def build_head(self, context: HeadContext) -> "Generator":
        return Generator(self.generator_config(context.encoder_config), context)

    def generator_config(self, encoder: EncoderConfig) -> EncoderConfig:
        tables, depth = encoder.embeddings, encoder.depth
        if self.layers is not None:
            if "layers" not in type(depth).model_fields:
                raise ValueError(
                    f"objectives.generated.layers needs a depth with a number of layers, not "
                    f"{depth.kind}: leave it out"  # type: ignore[attr-defined]
                )
            depth = depth.model_copy(update={"layers": self.layers})
        embeddings = FactorisedEmbeddingsConfig(
            width=encoder.token_embedding_width,
            segments=tables.segments,
            languages=tables.languages,
            tasks=tables.tasks,
            norm=tables.norm,
            scaled=tables.scaled,
            embedding_dropout=tables.embedding_dropout,
            word_dropout=tables.word_dropout,
        )
        width = round(self.width * encoder.width)
        owner = "objectives.generated, its generator"
        return encoder.copy_with(owner, width=width, depth=depth, embeddings=embeddings)

    def replace_tokens(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: nn.Module | None
    ) -> tuple[Tensor, Loss]:
        assert isinstance(head, Generator)
        states = self._generator_states(targets, generator_input, head)
        table = head.encoder.embeddings.table
        loss, num_correct = head.output.loss(states, table, targets.labels, targets.weights)
        # Fillers are sampled too, for constant shapes, and written past the end.
        samples = head.sample_tokens(
            states, generator_input.dropout_rng, targets.positions + generator_input.first_position
        )
        token_ids = pad(generator_input.token_ids.flatten(), (0, 1))
        positions = targets.positions
        if targets.weights is not None:
            positions = torch.where(targets.weights > 0, positions, len(token_ids) - 1)
        token_ids = token_ids.index_copy(0, positions, samples)[:-1]
        return token_ids.view_as(generator_input.token_ids), Loss(
            loss, targets.total_weight, num_correct
        )

    def generator_logits(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: nn.Module | None
    ) -> Tensor:
        assert isinstance(head, Generator)
        table = head.encoder.embeddings.table
        return head.output.logits(self._generator_states(targets, generator_input, head), table)

    def _generator_states(
        self, targets: DeviceTargets, generator_input: GeneratorInput, head: "Generator"
    ) -> Tensor:
        dropout_rng = (
            None
            if generator_input.dropout_rng is None
            else generator_input.dropout_rng.for_block(DROPOUT_STREAM)
        )
        states = head.encoder(
            generator_input.token_ids,
            generator_input.token_info,
            generator_input.visibility,
            dropout_rng,
        )
        return states.flatten(0, 1).index_select(0, targets.positions)


class Generator(nn.Module):
    """A small encoder with an LM head that shares the embedding tables of the main encoder."""

    def __init__(self, config: EncoderConfig, context: HeadContext) -> None:
        super().__init__()
        self.encoder = Encoder(config, context.vocab_size)
        embeddings, shared = self.encoder.embeddings, context.embeddings
        embeddings.tokens, embeddings.segments = shared.tokens, shared.segments
        embeddings.languages, embeddings.tasks = shared.languages, shared.tasks
        if config.positions.is_additive:
            embeddings.positions = shared.positions
        embeddings.sum.norm = shared.sum.norm
        self.output: LMHead = TiedHeadConfig().build(config, context.vocab_size)

    @torch.no_grad()
    def sample_tokens(
        self, hidden_states: Tensor, dropout_rng: DropoutRng | None, positions: Tensor
    ) -> Tensor:
        """Sample a token for each hidden state (M, D) from the softmax; return (M,) int64.

        Random numbers depend on ``positions`` (M,); without ``dropout_rng`` they are always the
        same.
        """
        logits = self.output.logits(hidden_states, self.encoder.embeddings.table)
        cumulative = _cumulative_sums(torch.softmax(logits.float(), dim=-1))
        draws = (
            uniform_for_step(dropout_rng or DropoutRng.for_step(0, 0), positions, SAMPLING_STREAM)[
                :, None
            ]
            * cumulative[:, -1:]
        )
        return torch.searchsorted(cumulative, draws).squeeze(1).clamp(max=cumulative.shape[1] - 1)

    def compile_parts(self) -> None:
        """Compile the encoder and the head."""
        self.encoder.compile_parts()
        self.output.compile_parts()


def _cumulative_sums(probabilities: Tensor) -> Tensor:
    """Return the cumulative sums of each row of (M, V).

    In deterministic mode PyTorch refuses cumulative sums on the GPU, because a single row is not
    deterministic; with several rows, the threads of each row sum it in order.
    """
    strictness = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("default")
    try:
        return probabilities.cumsum(-1)
    finally:
        torch.set_deterministic_debug_mode(strictness)
