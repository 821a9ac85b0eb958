"""Multi-head attention (Vaswani et al. 2017)."""

from typing import ClassVar, Literal

from torch import Tensor, nn

from bertwright.axes import Choice
from bertwright.encoder.kernels.attention import Call, KernelName, attend
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.positions import Rotation, rotate
from bertwright.encoder.roles import Role
from bertwright.encoder.taps import Site, tap
from bertwright.encoder.visibility import View


class Mixer(Choice):
    """The axis: how places exchange information."""

    def build(self, width: int) -> nn.Module:
        """A module from (B, L, width) to (B, L, width)."""
        raise TypeError(f"{type(self).__name__} is an axis, not a mixer")


class AttentionChoice(Mixer):
    """Scaled dot-product attention in several heads.

    The number of heads is ``heads``, or else the width divided by ``head_width``. ``dropout`` is
    the rate for attention weights while training.
    """

    kind: Literal["attention"] = "attention"
    heads: int | None = None
    head_width: int = 64
    bias: bool = True
    dropout: float = 0.0
    kernel: KernelName = "auto"

    def num_heads(self, width: int) -> int:
        """The number of heads in a model of the given width."""
        return self.heads or max(1, width // self.head_width)

    def build(self, width: int) -> nn.Module:
        heads = self.num_heads(width)
        if width % heads:
            raise ValueError(f"a width of {width} cannot be shared by {heads} heads")
        return Attention(width, heads, self.bias, self.dropout, self.kernel)


class Attention(nn.Module):
    """Queries, keys and values by one fused projection; a kernel; an output projection."""

    parameter_roles: ClassVar[dict[str, Role]] = {
        "projection.weight": Role("matrix", parts=3),
        "output.weight": Role("matrix", residual=True),
    }

    def __init__(self, width: int, heads: int, bias: bool, rate: float, kernel: KernelName) -> None:
        super().__init__()
        self.heads, self.rate, self.biased = heads, rate, bias
        self.kernel: KernelName = kernel
        self.projection = nn.Linear(width, 3 * width, bias)
        self.output = nn.Linear(width, width, bias)

    def forward(
        self,
        x: Tensor,
        view: View,
        rotation: Rotation | None = None,
        noise: Noise | None = None,
        site: Site | None = None,
    ) -> Tensor:
        """x (B, L, D) to (B, L, D); ``view`` says who sees whom."""
        batch, length, width = x.shape
        fused = self.projection(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = fused.permute(2, 0, 3, 1, 4).unbind(0)
        if rotation is not None:
            query, key = rotate(query, rotation), rotate(key, rotation)
        query, key = tap(site, "query", query), tap(site, "key", key)
        value = tap(site, "value", value)
        context = attend(Call(query, key, value, view, self.rate, noise, site), self.kernel)
        context = tap(site, "context", context)
        if site is not None and site.wants("heads"):
            return tap(site, "output", self._by_head(context, site))
        joined = context.transpose(1, 2).reshape(batch, length, width)
        return tap(site, "output", self.output(joined))

    def _by_head(self, context: Tensor, site: Site) -> Tensor:
        """What each head writes, (B, H, L, D), and their sum with the bias."""
        width = self.output.weight.shape[0]
        slices = self.output.weight.view(width, self.heads, -1).permute(1, 2, 0)
        written = tap(site, "heads", context @ slices)
        total = written.sum(1)
        return total + self.output.bias if self.biased else total
