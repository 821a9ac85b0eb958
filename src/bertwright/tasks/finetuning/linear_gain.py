"""Linear label gain: the loss of the labels at every position of a text (Dai and Le 2015).

The weight of position t of T is t / T. Predictions read the last position only.
"""

import torch
from torch import Tensor

from bertwright.modules.dropout_rng import DropoutRng
from bertwright.tasks.heads.head import HeadConfig, TaskHead
from bertwright.tasks.heads.pooling import linear_gains
from bertwright.tasks.outputs import OutputDecoder, OutputType
from bertwright.tasks.outputs.classification import SequenceOutput


def check_linear_gain(head: HeadConfig, output_type: OutputType, is_frozen: bool) -> str | None:
    """Return why a head and an output type do not allow the loss; None if they do."""
    if not isinstance(output_type, SequenceOutput):
        return f"linear_gain: output type {output_type.kind_name()} does not label texts"
    if head.pooling != "last":
        return f"linear_gain trains every position: set head.pooling to last, not {head.pooling}"
    if is_frozen:
        return "linear_gain trains the encoder: choose another adaptation than frozen"
    return None


def linear_gain_loss(
    head: TaskHead,
    decoder: OutputDecoder,
    hidden_states: Tensor,
    document_ids: Tensor,
    targets: Tensor,
    dropout_rng: DropoutRng | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the outputs (B, K) at the last positions, and the loss summed over B sequences.

    The loss of a sequence is the mean over its positions, weighted by their gains.
    ``hidden_states`` are (B, L, W), ``document_ids`` (B, L), ``targets`` (B * k,). ``dropout_rng``
    counts sequences.
    """
    batch_size, length = document_ids.shape
    is_real = document_ids >= 0
    positions = is_real.flatten().nonzero().squeeze(1)
    if dropout_rng is not None:
        dropout_rng = dropout_rng.at_positions(positions, length)
    outputs = head.project(hidden_states.flatten(0, 1)[positions], (), dropout_rng)
    sequence_index = positions // length
    labels = targets.view(batch_size, -1)[sequence_index]

    def loss_at(output: Tensor, label: Tensor) -> Tensor:
        return decoder.loss(output[None], [1], label)[0]

    losses = torch.vmap(loss_at)(outputs, labels)
    gains = linear_gains(is_real, head.reads_backward)
    weights = (gains / gains.sum(1, keepdim=True)).flatten()[positions]
    final = gains.argmax(1)
    index_of_position = is_real.flatten().cumsum(0) - 1
    last = index_of_position[torch.arange(batch_size, device=final.device) * length + final]
    return outputs[last], (weights * losses).sum()
