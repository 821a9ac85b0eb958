"""Task heads: small modules that map hidden states to the outputs of a task."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor, nn

from bertwright.core.config import Config
from bertwright.core.errors import UserError
from bertwright.models.layer_selection import LayerSelection, select_layers
from bertwright.models.model import Model
from bertwright.modules.attention.mask import reads_backward
from bertwright.modules.dropout_rng import DropoutRng, dropout
from bertwright.modules.initialisation import (
    FanInInitialisationConfig,
    PublishedInitialisationConfig,
    initialise,
)
from bertwright.modules.norms import LayerNormConfig
from bertwright.recipes import Recipe
from bertwright.tasks.heads.layers import (
    BatchNorm,
    HeadMix,
    HeadNorm,
    IsotropicBatchNorm,
    LayerMix,
    WordBiLSTM,
)
from bertwright.tasks.heads.pooling import (
    NUM_POOLED_VECTORS,
    SEQUENCE_POOLERS,
    HeadPooling,
    pooling_positions,
)
from bertwright.tasks.heads.standardiser import LinearParameters, Standardiser
from bertwright.tasks.heads.word_vectors import WordVectors


@dataclass(frozen=True)
class TaskHeadContext:
    """The inputs for building a head.

    Attributes:
        num_outputs: number of outputs of the task; 0 if the pooled states are the output.
        vocab_size: number of tokens, for word vectors.
        num_adapters: number of knowledge adapters that the head reads.
    """

    recipe: Recipe
    num_outputs: int
    dropout_rate: float = 0.0
    vocab_size: int = 0
    num_adapters: int = 0


Trunk = tuple[nn.Module, int, tuple[float, float]]
"""Layers before a classifier, their output width, and the dropout rates before and after them."""

LayerName = Annotated[
    str, BeforeValidator(lambda value: str(value) if type(value) is int else value)
]
"""Layers as named in ``embed``; YAML reads a single layer as a number."""


class HeadConfig(Config):
    """The axis of heads: the module between hidden states and outputs.

    Attributes:
        layers: the layers to read.
        mix: how several layers are combined: ``concat``, ``sum``, ``mean``, or ``learned`` weights
            (Peters et al. 2018, equation 1).
        mix_norm: normalise each layer before they are mixed.
        mix_l2: coefficient of the squared learned weights, added to the loss.
        norm: the norm of the pooled and mixed states, before the first layer of the head: a layer
            norm, a batch norm, or an isotropic batch norm (Zhou et al. 2021).
    """

    pooling: HeadPooling = "first"
    layers: LayerName = "last"
    mix: HeadMix = "concat"
    mix_norm: bool = False
    mix_l2: float = Field(default=0.0, ge=0)
    norm: HeadNorm = "none"

    is_recurrent: ClassVar[bool] = False
    """True if the trunk is a recurrent network."""

    uses_lm_head: ClassVar[bool] = False
    """True if the outputs come from the pre-trained language-model head."""

    def build(self, context: TaskHeadContext) -> "TaskHead":
        """Build the head."""
        input_width = self._input_width(context)
        trunk, width, rates = self.build_trunk(context, input_width)
        mix, norm = self._build_mix(context.recipe), self.build_input_norm(input_width)
        head = TaskHead(self, trunk, mix, norm, width, context, rates)
        head.word_vectors = self.build_word_vectors(context)
        return head

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        """Build the trunk for an input of this width."""
        raise TypeError(f"{type(self).__name__} is an axis, not a head")

    def build_input_norm(self, width: int) -> nn.Module:
        """Build the norm of the mixed features (M, width), before dropout."""
        match self.norm:
            case "layer":
                return LayerNormConfig().build(width)
            case "batch":
                return BatchNorm(width)
            case "isotropic":
                return IsotropicBatchNorm(width)
            case "none":
                return nn.Identity()

    def build_word_vectors(self, context: TaskHeadContext) -> WordVectors | None:
        """Build the word vectors that the trunk reads beside the features; None for none."""
        return None

    def load_pretrained(self, head: "TaskHead", model: Model) -> None:
        """Copy the parameters that a pretrained model provides for this head."""

    def input_projections(self, head: "TaskHead") -> LinearParameters:
        """Return the linear maps of hidden states in a new head; none if they are pretrained."""
        return ()

    def resolve_layers(self, recipe: Recipe, num_adapters: int = 0) -> LayerSelection:
        """Return the layers to read; they are concatenated here and mixed afterwards.

        The outputs of ``num_adapters`` knowledge adapters come before them.
        """
        widths = recipe.encoder.hidden_widths
        try:
            select_layers(self.layers, "concat" if self.mix == "concat" else "sum", widths)
            selection = select_layers(self.layers, "concat", widths)
        except UserError as error:
            raise UserError(f"head.layers: {error}") from error
        width = selection.width + num_adapters * recipe.encoder.width
        return replace(selection, width=width, num_adapters=num_adapters)

    def _input_width(self, context: TaskHeadContext) -> int:
        """Return the width of the pooled and mixed states."""
        layers = self.resolve_layers(context.recipe, context.num_adapters)
        num_mixed = 1 if self.mix == "concat" else len(layers.indices)
        return layers.width // num_mixed * NUM_POOLED_VECTORS.get(self.pooling, 1)

    def _build_mix(self, recipe: Recipe) -> nn.Module:
        if self.mix == "concat":
            return nn.Identity()
        num_layers = len(self.resolve_layers(recipe).indices)
        num_poolings = NUM_POOLED_VECTORS.get(self.pooling, 1)
        return LayerMix(self.mix, num_layers, num_poolings, self.mix_norm)


class TaskHead(nn.Module):
    """A task head: mix of layers, norm, trunk, and a linear classifier.

    ``dropout_rates`` apply before and after the trunk. ``standardiser`` standardises the mixed
    features while the head is trained on a frozen encoder.
    """

    standardiser: Standardiser | None = None
    word_vectors: WordVectors | None

    def __init__(
        self,
        config: HeadConfig,
        trunk: nn.Module,
        mix: nn.Module,
        norm: nn.Module,
        width: int,
        context: TaskHeadContext,
        dropout_rates: tuple[float, float],
    ) -> None:
        super().__init__()
        self.config, self.dropout_rates = config, dropout_rates
        self.layers = config.resolve_layers(context.recipe, context.num_adapters)
        self.reads_backward = reads_backward(context.recipe.encoder.visibility)
        self.mix, self.norm, self.trunk, self.word_vectors = mix, norm, trunk, None
        self.width = width
        num_outputs = context.num_outputs
        self.classifier: nn.Module = nn.Linear(width, num_outputs) if num_outputs else nn.Identity()

    @property
    def input_projections(self) -> LinearParameters:
        """Return the linear maps that may read standardised features; none behind a norm."""
        return self.config.input_projections(self) if isinstance(self.norm, nn.Identity) else ()

    @property
    def features_width(self) -> int:
        """Return W' of :meth:`pool`."""
        return self.layers.width * NUM_POOLED_VECTORS.get(self.config.pooling, 1)

    def output_positions(
        self, token_ids: Tensor, document_ids: Tensor | None, positions: Tensor | None = None
    ) -> Tensor | None:
        """Return the flat positions (M,) whose hidden states the head reads; None for all.

        token_ids: (B, L). ``positions`` are the output positions of the task.
        """
        return pooling_positions(
            self.config.pooling, token_ids, document_ids, positions, self.reads_backward
        )

    def forward(
        self,
        hidden_states: Tensor,
        document_ids: Tensor | None,
        output_lengths: Sequence[int] = (),
        dropout_rng: DropoutRng | None = None,
        token_ids: Tensor | None = None,
        segment_ids: Tensor | None = None,
    ) -> Tensor:
        """Map hidden states (B, L, W) or (M, W) to float32 outputs (B, K) or (M, K).

        The layers are concatenated along W; M is the number of flat ``output_positions``.
        ``output_lengths`` holds the number of positions of each sequence. ``token_ids`` (M,), the
        tokens at the output positions, are for heads with word vectors. ``segment_ids`` (B, L) tell
        the texts of a pair apart.
        """
        if self.config.pooling == "pair":
            assert segment_ids is not None, "pooling: pair requires segments"
            return self.project_pair(hidden_states, document_ids, segment_ids, dropout_rng)
        pooled = self.pool(hidden_states, document_ids)
        return self.project(pooled, output_lengths, dropout_rng, token_ids)

    def project_pair(
        self,
        hidden_states: Tensor,
        document_ids: Tensor | None,
        segment_ids: Tensor,
        dropout_rng: DropoutRng | None = None,
    ) -> Tensor:
        """Map the hidden states (B, L, W) of both texts of pairs to float32 outputs (B, K)."""
        x = self.mix(hidden_states.flatten(0, 1)).unflatten(0, hidden_states.shape[:2])
        x = dropout(x, self.dropout_rates[0], dropout_rng, 0)
        is_real = segment_ids >= 0 if document_ids is None else document_ids >= 0
        is_first, is_second = (is_real & (segment_ids == text) for text in (0, 1))
        return self.trunk(x, is_first, is_second, dropout_rng).float()

    def penalty(self) -> Tensor:
        """Return the penalty () of the learned mixing weights, which is added to the loss."""
        assert isinstance(self.mix, LayerMix), "only a learned mix has weights"
        return self.config.mix_l2 * self.mix.weights.float().square().sum()

    def pool(self, hidden_states: Tensor, document_ids: Tensor | None) -> Tensor:
        """Pool hidden states into (M, W'), without using any parameters."""
        pooler = SEQUENCE_POOLERS.get(self.config.pooling)
        if pooler is None:
            return hidden_states
        return pooler(hidden_states, document_ids, self.reads_backward)

    def project(
        self,
        pooled: Tensor,
        output_lengths: Sequence[int] = (),
        dropout_rng: DropoutRng | None = None,
        token_ids: Tensor | None = None,
    ) -> Tensor:
        """Map pooled states (M, W') of tokens (M,) to outputs (M, K)."""
        before, after = self.dropout_rates
        x = self.mix(pooled)
        x = x if self.standardiser is None else self.standardiser(x)
        if self.word_vectors is not None:
            assert token_ids is not None, "word vectors need token ids"
            x = torch.cat((x, self.word_vectors(token_ids).to(x.dtype)), dim=1)
        x = dropout(self.norm(x), before, dropout_rng, 0)
        x = self.trunk(x, output_lengths) if isinstance(self.trunk, WordBiLSTM) else self.trunk(x)
        return self.classifier(dropout(x, after, dropout_rng, 1)).float()


def init_head(head: TaskHead, model: Model | None, seed: int) -> None:
    """Initialise a head, and copy the parameters that a pretrained model provides for it.

    The standard deviation is 0.02, as in BERT; recurrent heads are initialised by their fan-in.
    """
    initialise(head, PublishedInitialisationConfig(), seed)
    for module in head.modules():
        if isinstance(module, BatchNorm | IsotropicBatchNorm):
            module.reset_statistics()
    if head.config.is_recurrent:
        initialise(head.trunk, FanInInitialisationConfig(gain=1.0), seed)
    if model is not None:
        head.config.load_pretrained(head, model)


def warm_start(head: TaskHead, trained: TaskHead) -> bool:
    """Copy mix, norm and trunk of a head trained for another task; return whether they fit.

    The heads may differ only in their pooling.
    """
    same = trained.config.model_copy(update={"pooling": head.config.pooling}) == head.config
    shapes = parameter_shapes(head.trunk)
    if not (same and shapes and shapes == parameter_shapes(trained.trunk)):
        return False
    head.mix.load_state_dict(trained.mix.state_dict())
    head.norm.load_state_dict(trained.norm.state_dict())
    head.trunk.load_state_dict(trained.trunk.state_dict())
    if head.word_vectors is not None and trained.word_vectors is not None:
        head.word_vectors.load_state_dict(trained.word_vectors.state_dict())
    return True


def parameter_shapes(module: nn.Module) -> dict[str, torch.Size]:
    """Return the shapes of parameters and buffers by name."""
    return {name: tensor.shape for name, tensor in module.state_dict().items()}
