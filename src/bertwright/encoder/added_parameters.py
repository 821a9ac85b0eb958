"""Parameters that were added to an encoder, such as adapters."""

import torch

from bertwright.encoder.config import EncoderConfig
from bertwright.encoder.encoder import Encoder


def added_parameters(encoder: Encoder, config: EncoderConfig, vocab_size: int) -> list[str]:
    """Return the names of the parameters that an encoder has beyond its configuration."""
    with torch.device("meta"):
        plain = Encoder(config, vocab_size)
    names = {name for name, _ in plain.named_parameters()}
    return sorted(name for name, _ in encoder.named_parameters() if name not in names)
