"""Ways to adapt an encoder to a task: which parameters are trained, and which are added."""

from bertwright.tasks.adapters.adaptation import (
    AdaptationConfig,
    AdaptersConfig,
    FrozenEncoderConfig,
    FullFineTuningConfig,
    GradualFineTuningConfig,
    LastLayersConfig,
    LoraConfig,
)
from bertwright.tasks.adapters.knowledge import KnowledgeAdaptersConfig, KnowledgeFusionConfig
from bertwright.tasks.adapters.quantization import Quantization

__all__ = [
    "AdaptationConfig",
    "AdaptersConfig",
    "FrozenEncoderConfig",
    "FullFineTuningConfig",
    "GradualFineTuningConfig",
    "KnowledgeAdaptersConfig",
    "KnowledgeFusionConfig",
    "LastLayersConfig",
    "LoraConfig",
    "Quantization",
]
