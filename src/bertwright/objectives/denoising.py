"""Denoising: the encoder reads a corrupted text, the decoder predicts missing tokens or all tokens.

Sources: Lewis et al. 2020; Raffel et al. 2020; Song et al. 2019.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from torch import Tensor

from bertwright.batches.noising import Noising, Sentinels
from bertwright.batches.targets import BatchWithTargets
from bertwright.batches.token_info import SequenceBatch
from bertwright.modules.token_tensors import CrossAttentionSource
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.model_output import DeviceTargets, ModelOutput
from bertwright.objectives.objective import MaskingContext, Objective


class Denoising(Objective):
    """Corrupt a text and reconstruct it with a decoder.

    ``noising`` defines the encoder input and the decoder targets. In the objective ``masked``, by
    contrast, the encoder itself predicts the masked tokens.
    """

    kind: Literal["denoising"] = "denoising"
    noising: Noising = Sentinels()

    capabilities: ClassVar[Capabilities] = Capabilities(
        prediction="denoising", predicts_tokens=True, masks_input=True, uses_decoder=True
    )

    @property
    def permutes_input(self) -> bool:
        return self.noising.permutes_input

    @property
    def decoder_noising(self) -> Noising:
        return self.noising

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        rng = context.rng.fold_in("denoising")
        return self.noising.add_noise(batch, context.vocabulary, rng, context.progress)

    def describe_extra_inputs(
        self, extra_inputs: Mapping[str, int], token_name: Callable[[int], str]
    ) -> dict[str, int | str]:
        named = {
            name: value
            for name, value in extra_inputs.items()
            if name != "decoder_language_ids" or value > 0
        }
        return {**named, "decoder_input_ids": token_name(extra_inputs["decoder_input_ids"])}

    def hidden_states(self, targets: DeviceTargets, output: ModelOutput) -> Tensor:
        """Return the hidden states (M, D) of the decoder."""
        assert output.decoder is not None, "a denoising recipe has a decoder"
        assert output.token_info is not None, "cross-attention needs the token info of the source"
        num_sequences = len(output.hidden_states)
        inputs = {
            name: values.view(num_sequences, -1) for name, values in targets.extra_inputs.items()
        }
        source = CrossAttentionSource(output.hidden_states, output.token_info)
        states = output.decoder.decode(
            inputs["decoder_input_ids"],
            source,
            inputs.get("decoder_position_ids"),
            inputs.get("decoder_language_ids"),
            output.dropout_rng,
        )
        return states.flatten(0, 1)
