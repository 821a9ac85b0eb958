"""PyTorch's own transformer layer with the weights of a block, for independent computations."""

from typing import Any

from torch import nn

from bertwright.encoder.block import Block


def torch_layer(block: Any, num_heads: int) -> nn.TransformerEncoderLayer:
    """Return PyTorch's layer with the weights of a post-norm block, without its fast path."""
    assert isinstance(block, Block)
    attention, feed_forward = block.sublayers["attention"], block.sublayers["feed_forward"]
    layers = [module for module in feed_forward.modules() if isinstance(module, nn.Linear)]
    width = attention.projection.in_features
    layer = nn.TransformerEncoderLayer(
        width, num_heads, layers[0].out_features, 0.0, "gelu", 1e-12, batch_first=True
    )
    weights = {
        "self_attn.in_proj_weight": attention.projection.weight,
        "self_attn.in_proj_bias": attention.projection.bias,
        "self_attn.out_proj.weight": attention.output.weight,
        "self_attn.out_proj.bias": attention.output.bias,
    }
    modules = {
        "linear1": layers[0],
        "linear2": layers[1],
        "norm1": block.norms["attention"],
        "norm2": block.norms["feed_forward"],
    }
    for name, module in modules.items():
        weights |= {f"{name}.weight": module.weight, f"{name}.bias": module.bias}
    layer.load_state_dict(weights)
    return layer.train()
