"""Capabilities of an objective, declared once in its class."""

from dataclasses import dataclass
from typing import Literal

from bertwright.batches.token_info import Relation


@dataclass(frozen=True)
class Capabilities:
    """The declared properties of an objective, which other packages read instead of its class.

    Attributes:
        prediction: how the objective predicts the tokens of a text: the next token, in a permuted
            order, with a decoder, or masked tokens; None for other objectives. It determines how a
            model generates, scores and ranks. An objective with a decoder also returns its
            ``decoder_noising``. For masked and permuted tokens, only hidden states at targets are
            computed if that is cheaper.
        predicts_tokens: predicts tokens with the model's LM head.
        is_classification: has discrete labels, so accuracy is defined.
        masks_input: the encoder input lacks the predicted tokens, or has them at other positions;
            the masked fraction of the text is reported.
        corrupts_input: corrupts the encoder's input for other objectives, so it is evaluated alone.
        permutes_input: moves tokens that are not targets.
        uses_decoder: predicts with a decoder.
        is_generator: its head runs before the encoder and replaces input tokens.
        detects_replacements: needs a generator, and classifies tokens as replaced or not.
        uses_embedding_table: its own head reads the embedding table.
        needs_document_context: its labels depend on parts of the document outside the sequence.
        needs_halting: needs a depth that halts.
        compares_sequences: compares the sequences of a step with each other, so that a step is one
            micro-batch of one process.
        relations: relations of the texts of a pair that are its classes.
        class_labels: names of its classes, if these do not depend on its settings.
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
    compares_sequences: bool = False
    relations: tuple[Relation, ...] = ()
    class_labels: tuple[str, ...] = ()

    @property
    def reads_targets_only(self) -> bool:
        """Return whether only the hidden states that predict the (few) targets are read."""
        return self.prediction in ("masked", "permutation")
