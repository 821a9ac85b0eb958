"""What all attention modules share: splitting into heads, and the output projection."""

from typing import cast

from torch import Tensor, nn

from bertwright.modules.hooks import HookPoint, tap


class MultiHeadModule(nn.Module):
    """An attention module with ``num_heads`` heads, an inner ``norm`` and an ``output`` matrix."""

    num_heads: int
    norm: nn.Module
    output: nn.Linear

    def split_heads(self, x: Tensor, num_parts: int) -> tuple[Tensor, ...]:
        """Split projections (B, L, num_parts H d) into parts (B, H, L, d)."""
        parts = x.unflatten(-1, (num_parts, self.num_heads, -1))
        return parts.permute(2, 0, 3, 1, 4).unbind(0)

    def project_output(
        self, attended: Tensor, hooks: HookPoint | None, gate: Tensor | None = None
    ) -> Tensor:
        """Project the attended values (B, H, L, d), times a gate (B, L, H d), to (B, L, D)."""
        merged = tap(hooks, "context", attended).transpose(1, 2).flatten(2)
        merged = self.norm(merged if gate is None else merged * gate)
        if hooks is None or not hooks.is_requested("heads"):
            return tap(hooks, "output", self.output(merged))
        slices = self.output.weight.unflatten(1, (self.num_heads, -1)).permute(1, 2, 0)
        by_head = merged.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        total = tap(hooks, "heads", by_head @ slices).sum(1)
        bias = cast(Tensor | None, self.output.bias)
        return tap(hooks, "output", total if bias is None else total + bias)
