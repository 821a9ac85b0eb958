"""Selection and combination of layers (Peters et al. 2018; Devlin et al. 2019, section 5.3).

Layer 0 is the embeddings, layer k the output of block k; the last layer includes the final norm.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from bertwright.core.errors import UserError
from bertwright.encoder.encoder import Encoder
from bertwright.encoder.knowledge_adapter import ADAPTER_STREAM, KnowledgeAdapter
from bertwright.modules.attention.cache import Memory
from bertwright.modules.dropout_rng import DropoutRng
from bertwright.modules.token_tensors import TokenInfo

LayerReduction = Literal["concat", "sum", "mean"]

_NUMBERS = re.compile(r"(\d+)(?:-(\d+))?")
_LAST = re.compile(r"last(?:-(\d+))?")


@dataclass(frozen=True)
class LayerSelection:
    """Indices of layers, and the combination of their hidden states to ``width`` features.

    With ``num_adapters``, the outputs of that many knowledge adapters are concatenated before them.
    """

    indices: tuple[int, ...]
    mix: LayerReduction
    width: int
    num_adapters: int = 0

    def is_output(self, encoder: Encoder) -> bool:
        """Return whether nothing but the output of an encoder is selected."""
        return self.indices == (len(encoder.blocks),) and not self.num_adapters

    def num_blocks(self, encoder: Encoder) -> int:
        """Return the number of blocks, from the first, that the selection reads."""
        adapters = _knowledge_adapters(encoder)[: self.num_adapters]
        return max((*self.indices, *(n for adapter in adapters for n in adapter.shape.layers)))

    def hidden_states(
        self,
        encoder: Encoder,
        token_ids: Tensor,
        token_info: TokenInfo,
        dropout_rng: DropoutRng | None = None,
        output_positions: Tensor | None = None,
        memory: Memory | None = None,
    ) -> Tensor:
        """Return hidden states (B, L, width), or (M, width) at flat ``output_positions`` (M,).

        Blocks above the highest selected layer are not computed, unless a hook may need them.
        ``memory`` is the text before the sequences.
        """
        adapters = _knowledge_adapters(encoder)[: self.num_adapters]
        adapter_layers = [layer for adapter in adapters for layer in adapter.shape.layers]
        depth, highest = len(encoder.blocks), self.num_blocks(encoder)
        if self.is_output(encoder):
            return encoder(
                token_ids,
                token_info,
                dropout_rng=dropout_rng,
                memory=memory,
                output_positions=output_positions,
            )
        names = {index: _tap_name(index, depth) for index in (*self.indices, *adapter_layers)}
        runs_all_blocks = highest == depth or not encoder.taps.is_idle
        stop_after = None if runs_all_blocks else max(highest - 1, 0)
        with encoder.record(*names.values(), output_gradients=torch.is_grad_enabled()) as values:
            encoder(
                token_ids,
                token_info,
                dropout_rng=dropout_rng,
                stop_after=stop_after,
                memory=memory,
            )
        by_layer = {index: values[name] for index, name in names.items()}
        states, stream = [by_layer[index] for index in self.indices], ADAPTER_STREAM
        for number, adapter in enumerate(adapters):
            states.insert(number, adapter(by_layer, token_info, dropout_rng, stream))
            stream += adapter.num_streams
        if output_positions is not None:
            states = [state.flatten(0, 1).index_select(0, output_positions) for state in states]
        if self.mix == "concat":
            return torch.cat(states, dim=-1)
        stacked = torch.stack(states)
        return stacked.sum(0) if self.mix == "sum" else stacked.mean(0)


def _knowledge_adapters(encoder: Encoder) -> list[KnowledgeAdapter]:
    """Return the knowledge adapters of an encoder as a typed list."""
    return [cast(KnowledgeAdapter, adapter) for adapter in encoder.knowledge_adapters]


def select_layers(layers: str, mix: LayerReduction, widths: Sequence[int]) -> LayerSelection:
    """Parse ``last``, ``last-but-one``, ``last-4``, ``7``, ``5-8``, ``2,4,6`` or ``all``.

    ``widths`` are the widths of the embeddings and of all blocks. ``all`` excludes the embeddings;
    ``last-4`` selects fewer layers if the model has fewer. Errors: UserError for unknown layers,
    and for layers of unequal width that are to be summed or averaged.
    """
    if mix not in get_args(LayerReduction):
        raise UserError(f"unknown layer mix {mix!r}: choose {', '.join(get_args(LayerReduction))}")
    depth = len(widths) - 1
    selected = [index for part in layers.split(",") for index in _layer_range(part.strip(), depth)]
    indices = tuple(dict.fromkeys(selected))
    selected_widths = [widths[index] for index in indices]
    if mix == "concat":
        return LayerSelection(indices, mix, sum(selected_widths))
    if len(set(selected_widths)) > 1:
        raise UserError(
            f"layers {layers} have widths {sorted(set(selected_widths))}, which have no {mix}"
        )
    return LayerSelection(indices, mix, selected_widths[0])


def _layer_range(part: str, depth: int) -> range:
    if part == "all":
        layers = range(1, depth + 1)
    elif part == "last-but-one":
        layers = range(depth - 1, depth)
    elif last := _LAST.fullmatch(part):
        layers = range(depth + 1 - min(int(last[1] or 1), max(depth, 1)), depth + 1)
    elif match := _NUMBERS.fullmatch(part):
        layers = range(int(match[1]), int(match[2] or match[1]) + 1)
    else:
        layers = range(0)
    if not layers or not 0 <= layers[0] <= layers[-1] <= depth:
        known = (
            f"0 (the embeddings) to {depth}; write a number, 5-8, last, last-but-one, last-4 or all"
            if depth
            else "the embeddings only; write 0 or last"
        )
        raise UserError(f"no layers {part!r}: the model has {known}")
    return layers


def _tap_name(index: int, depth: int) -> str:
    if index == depth:
        return "output"
    return f"blocks.{index - 1}.residual" if index else "embeddings.output"
