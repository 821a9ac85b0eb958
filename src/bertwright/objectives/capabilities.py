"""Capabilities of an objective, declared once in its class."""

from dataclasses import dataclass
from typing import Literal

from bertwright.batches.token_info import Relation


@dataclass(frozen=True)
class Capabilities:
    """The declared properties of an objective; other packages read these, never its class.

    Attributes:
        prediction: how it predicts the tokens of a text, which decides how a model generates,
            scores and ranks: the next one, those of a permuted order, those of a decoder, or
            masked ones. None for other objectives. One with a decoder also returns its
            ``decoder_noising``. Of masked and permuted tokens only the hidden
            states at the targets are computed where that is cheaper.
        predicts_tokens: predicts tokens with the model's LM head.
        is_classification: has discrete labels, so that accuracy is defined.
        masks_input: the encoder does not see the predicted tokens, or not in their positions; the
            masked fraction of the text is then reported.
        corrupts_input: corrupts the encoder's input for others, so it is evaluated alone.
        permutes_input: moves tokens that are not targets.
        uses_decoder: predicts with a decoder.
        is_generator: its head runs before the encoder and replaces input tokens.
        detects_replacements: needs a generator, and classifies tokens as replaced or not.
        uses_embedding_table: its own head reads the embedding table.
        needs_document_context: its labels depend on parts of the document outside the sequence.
        needs_halting: needs a depth that halts.
        relations: relations of the texts of a pair that are its classes.
        class_labels: names of its classes, where these do not depend on its settings.
    """

    prediction: Literal["causal", "permutation", "denoising", "masked"] | None = None
    predicts_tokens: bool = False
    is_classification: bool = True
    masks_input: bool = False
    corrupts_input: bool = False
    permutes_input: bool = False
    uses_decoder: bool = False
    is_generator: bool = False
    detects_replacements: bool = False
    uses_embedding_table: bool = False
    needs_document_context: bool = False
    needs_halting: bool = False
    relations: tuple[Relation, ...] = ()
    class_labels: tuple[str, ...] = ()

    @property
    def reads_targets_only(self) -> bool:
        """True if it reads no hidden states but those that predict its targets, which are few."""
        return self.prediction in ("masked", "permutation")
