"""Masked language modelling, and the base class of masking objectives."""

from typing import ClassVar, Literal

from bertwright.batches.formats import InputFormat
from bertwright.batches.masking import MaskSelection, TokenSelection
from bertwright.batches.masking.corruption import Corruption, TokenReplacement
from bertwright.batches.targets import BatchWithTargets, mask_tokens
from bertwright.batches.token_info import SequenceBatch
from bertwright.core.schedules import ConstantSchedule
from bertwright.objectives.capabilities import Capabilities
from bertwright.objectives.objective import MaskingContext, Objective

EVALUATION_MASKING_RATE = 0.15


class MaskingObjective(Objective):
    """A base class with a ``selection`` of positions to mask and a ``corruption`` of tokens."""

    selection: MaskSelection = TokenSelection()
    corruption: Corruption = TokenReplacement()

    capabilities: ClassVar[Capabilities] = Capabilities(masks_input=True)

    @property
    def mask_selection(self) -> MaskSelection:
        return self.selection

    @property
    def token_corruption(self) -> Corruption:
        return self.corruption

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        return mask_tokens(
            batch,
            self.selection,
            self.corruption,
            context.vocabulary,
            context.rng.fold_in(self.kind),  # type: ignore[attr-defined]
            context.progress,
        )


class MaskedLM(MaskingObjective):
    """Mask tokens and predict them.

    ``shift`` is the distance from the predicting hidden state to the target. 0 predicts at the
    masked position, as Hugging Face models do; 1 predicts from one position before, so that causal
    and masked phases train the same mapping (Charpentier and Samuel 2024). The objective ``causal``
    instead predicts every next token and masks nothing.
    """

    kind: Literal["masked"] = "masked"
    shift: Literal[0, 1] = 0

    capabilities: ClassVar[Capabilities] = Capabilities(
        prediction="masked", predicts_tokens=True, masks_input=True
    )

    @property
    def prediction_shift(self) -> int:
        return self.shift

    def make_targets(self, batch: SequenceBatch, context: MaskingContext) -> BatchWithTargets:
        masked, targets = super().make_targets(batch, context)
        return masked, self.drop_unreachable(targets, batch)

    def for_evaluation(self, input_format: InputFormat) -> "MaskedLM":
        """Return the objective with BERT's masking, or only mask tokens for item histories."""
        selection = TokenSelection(masking_rate=ConstantSchedule(value=EVALUATION_MASKING_RATE))
        has_histories = "histories" in input_format.data_requirements
        only_masks = TokenReplacement(mask=1.0, random=0.0, keep=0.0)
        corruption = only_masks if has_histories else TokenReplacement()
        return self.model_copy(update={"selection": selection, "corruption": corruption})
