"""Task heads: the modules between hidden states and the outputs of a task."""

from bertwright.tasks.heads.answer_network import AnswerNetworkHeadConfig
from bertwright.tasks.heads.decoder_head import DecoderHeadConfig
from bertwright.tasks.heads.head import HeadConfig, TaskHead
from bertwright.tasks.heads.kinds import (
    BiLSTMHeadConfig,
    DenseHeadConfig,
    LinearHeadConfig,
    MLPHeadConfig,
    PoolerHeadConfig,
    TransformHeadConfig,
)
from bertwright.tasks.heads.text_vectors import TokenVectorHeadConfig, TokenWeightHeadConfig

__all__ = [
    "AnswerNetworkHeadConfig",
    "BiLSTMHeadConfig",
    "DecoderHeadConfig",
    "DenseHeadConfig",
    "HeadConfig",
    "LinearHeadConfig",
    "MLPHeadConfig",
    "PoolerHeadConfig",
    "TaskHead",
    "TokenVectorHeadConfig",
    "TokenWeightHeadConfig",
    "TransformHeadConfig",
]
