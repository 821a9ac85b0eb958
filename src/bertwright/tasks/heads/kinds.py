"""The kinds of heads: the layers between the pooled hidden states and the classifier."""

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import nn

from bertwright.core.errors import UserError
from bertwright.models.model import Model
from bertwright.modules.feed_forward import ACTIVATIONS
from bertwright.objectives.classification import PooledClassifier
from bertwright.objectives.heads.lm_head import LMHeadTransform
from bertwright.tasks.heads.head import HeadConfig, TaskHead, TaskHeadContext, Trunk
from bertwright.tasks.heads.layers import BatchNorm, DenseActivation, WordBiLSTM
from bertwright.tasks.heads.pooling import HeadPooling
from bertwright.tasks.heads.standardiser import LinearParameters
from bertwright.tasks.heads.word_vectors import WordVectors, WordVectorsConfig


class PoolerHeadConfig(HeadConfig):
    """The head of BertForSequenceClassification: dense, tanh, dropout, classifier.

    The dense layer starts from the pooler of next-sentence prediction (Devlin et al. 2019).
    """

    kind: Literal["pooler"] = "pooler"

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        return DenseActivation(width), width, (0.0, context.dropout_rate)

    @torch.no_grad()
    def load_pretrained(self, head: "TaskHead", model: Model) -> None:
        poolers = [h.pooler for h in model.heads.values() if isinstance(h, PooledClassifier)]
        pooler = next(filter(None, poolers), model.pooler)
        assert isinstance(head.trunk, DenseActivation)
        if pooler is not None and pooler.weight.shape == head.trunk.dense.weight.shape:
            head.trunk.dense.load_state_dict(pooler.state_dict())


class DenseHeadConfig(HeadConfig):
    """The head of RobertaForSequenceClassification: dropout, dense, activation, dropout, linear.

    All layers are new (Liu et al. 2019). RoBERTa uses tanh, ELECTRA gelu, DistilBERT relu, BigBird
    the activation of its feed-forward sublayers (``encoder``).
    """

    kind: Literal["dense"] = "dense"
    activation: Literal["tanh", "gelu", "relu", "encoder"] = "tanh"

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        name = self.activation
        if name == "encoder":
            name = context.recipe.encoder.feed_forward.activation
        activation = torch.tanh if name == "tanh" else ACTIVATIONS[name]
        return (
            DenseActivation(width, activation),
            width,
            (context.dropout_rate, context.dropout_rate),
        )

    def input_projections(self, head: "TaskHead") -> LinearParameters:
        assert isinstance(head.trunk, DenseActivation)
        return [(head.trunk.dense.weight, head.trunk.dense.bias)]


class TransformHeadConfig(HeadConfig):
    """The stock ModernBERT head: dense, activation, norm, dropout, classifier.

    Everything except the classifier starts from the transform of the language-model head (Warner et
    al. 2024).
    """

    kind: Literal["transform"] = "transform"

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        recipe = context.recipe
        if width != recipe.encoder.width:
            raise UserError("head.kind: transform reads one layer at one position: choose dense")
        trunk = LMHeadTransform(recipe.output, recipe.encoder)
        return trunk, recipe.output.width(recipe.encoder), (0.0, context.dropout_rate)

    @torch.no_grad()
    def load_pretrained(self, head: "TaskHead", model: Model) -> None:
        if model.output is not None and isinstance(model.output.transform, LMHeadTransform):
            head.trunk.load_state_dict(model.output.transform.state_dict())


class LinearHeadConfig(HeadConfig):
    """The head of stock token classification (BERT, RoBERTa): dropout, classifier."""

    kind: Literal["plain"] = "plain"

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        return nn.Identity(), width, (context.dropout_rate, 0.0)

    def input_projections(self, head: "TaskHead") -> LinearParameters:
        return (
            [(head.classifier.weight, head.classifier.bias)]
            if isinstance(head.classifier, nn.Linear)
            else ()
        )


class MLPHeadConfig(HeadConfig):
    """A hidden layer: dropout, linear, ReLU, dropout, classifier.

    With ``batch_norm`` there is a batch norm before each dropout, as in the classifier of ULMFiT,
    which has a ``width`` of 50 (Howard and Ruder 2018, section 3.3). The head of Dai and Le 2015
    has a width of 512, no batch norm and a ``hidden_dropout`` of 0.5, the rate after the hidden
    layer.
    """

    kind: Literal["mlp"] = "mlp"
    width: int = Field(default=50, ge=1, le=65_536)
    batch_norm: bool = True
    hidden_dropout: float = Field(default=0.1, ge=0, lt=1)

    def build_input_norm(self, width: int) -> nn.Module:
        if self.norm == "none" and self.batch_norm:
            return BatchNorm(width)
        return super().build_input_norm(width)

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        layers: list[nn.Module] = [nn.Linear(width, self.width), nn.ReLU()]
        if self.batch_norm:
            layers.append(BatchNorm(self.width))
        return nn.Sequential(*layers), self.width, (context.dropout_rate, self.hidden_dropout)

    def input_projections(self, head: "TaskHead") -> LinearParameters:
        assert isinstance(head.trunk, nn.Sequential)
        dense = head.trunk[0]
        assert isinstance(dense, nn.Linear)
        # A batch norm standardises the features itself.
        return [] if self.batch_norm else [(dense.weight, dense.bias)]


class BiLSTMHeadConfig(HeadConfig):
    """A bidirectional LSTM over words, then a classifier, with dropout before each.

    It is used on frozen features (Devlin et al. 2019, section 5.3), alone or beside
    ``word_vectors`` of the task (Peters et al. 2018, section 3.3).
    """

    kind: Literal["bilstm"] = "bilstm"
    is_recurrent: ClassVar[bool] = True
    pooling: HeadPooling = "positions"
    width: int = Field(default=768, ge=2, le=65_536)
    depth: int = Field(default=2, ge=1, le=64)
    word_vectors: WordVectorsConfig | None = None

    def build_word_vectors(self, context: TaskHeadContext) -> WordVectors | None:
        if self.word_vectors is None:
            return None
        return WordVectors(self.word_vectors, context.vocab_size)

    def build_trunk(self, context: TaskHeadContext, width: int) -> Trunk:
        added = 0 if self.word_vectors is None else self.word_vectors.width
        lstm = WordBiLSTM(width + added, self.width // 2, self.depth, num_features=width)
        return lstm, 2 * (self.width // 2), (context.dropout_rate, context.dropout_rate)

    def input_projections(self, head: "TaskHead") -> LinearParameters:
        assert isinstance(head.trunk, WordBiLSTM)
        return head.trunk.input_projections
