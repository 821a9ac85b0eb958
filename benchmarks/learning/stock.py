"""Stock models of Transformers with their optimisers, by setting of the grid."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Muon, Optimizer

from benchmarks.learning.arms import ModernBertSetting, TrainerSetting
from benchmarks.pretraining.transformers_worker import stock_model
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.recipes import Recipe


def build_stock_model(
    setting: TrainerSetting, size: str, vocab_size: int, specials: SpecialTokens
) -> Any:
    """Return a stock model of a size, untrained and without dropout."""
    if not isinstance(setting, ModernBertSetting):
        return stock_model(
            Recipe.load(f"bert-{size}"),
            vocab_size,
            initializer_range=setting.initializer_range,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    from transformers import ModernBertConfig, ModernBertForMaskedLM

    # The stock class has the body of `modern`: rotary positions, GeGLU, pre-norm, no biases.
    encoder = Recipe.load(f"modern-{size}").encoder
    num_layers = "".join(encoder.depth.sublayer_orders()).count("s")
    return ModernBertForMaskedLM(
        ModernBertConfig(
            vocab_size=vocab_size,
            hidden_size=encoder.width,
            intermediate_size=encoder.feed_forward.inner_width(encoder.width),
            num_hidden_layers=num_layers,
            num_attention_heads=encoder.width // 64,
            layer_types=["full_attention"] * num_layers,
            rope_parameters={
                kind: {"rope_type": "default", "rope_theta": 10_000.0}
                for kind in ("full_attention", "sliding_attention")
            },
            pad_token_id=specials.pad,
            cls_token_id=specials.start,
            bos_token_id=specials.start,
            sep_token_id=specials.end,
            eos_token_id=specials.end,
        )
    )


class MuonWithAdamW(Optimizer):
    """Muon for the matrices of blocks and AdamW for all other parameters, as one optimiser."""

    def __init__(self, model: nn.Module, setting: ModernBertSetting) -> None:
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        matrices = [p for name, p in named if p.ndim == 2 and ".layers." in name]
        others = [p for name, p in named if p.ndim != 2 or ".layers." not in name]
        self._parts: tuple[Optimizer, ...] = (
            Muon(matrices, lr=setting.matrix_learning_rate, weight_decay=0.01),
            AdamW(others, lr=setting.learning_rate, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01),
        )
        # The groups are shared, so that a schedule changes the learning rates of both.
        super().__init__([group for part in self._parts for group in part.param_groups], {})

    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters."""
        loss = None if closure is None else closure()
        with torch.no_grad():
            for part in self._parts:
                part.step()
        return loss


def build_optimiser(setting: TrainerSetting, model: nn.Module) -> Optimizer | None:
    """Return the optimiser of a setting; None for the Trainer's own."""
    return MuonWithAdamW(model, setting) if isinstance(setting, ModernBertSetting) else None
