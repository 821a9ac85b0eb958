"""The dropout rates of fine-tuning, which replace those of the recipe."""

from typing import Any

from pydantic import Field

from bertwright.core.config import Settings
from bertwright.core.errors import UserError
from bertwright.encoder.config import EncoderConfig
from bertwright.modules.dropout import DropoutConfig, LockedDropoutConfig
from bertwright.recipes import Recipe


class FineTuningDropout(Settings):
    """Dropout rates by part of the model; None keeps the rate of the recipe.

    - ``encoder``: hidden states: one rate, or the rates of locked dropout
    - ``mixer``: attention weights, or the recurrent weights of an LSTM (Merity et al. 2018)
    - ``embeddings``: tokens, for a whole step (Gal and Ghahramani 2016)
    - ``words``: single positions of the text (Iyyer et al. 2015; Dai and Le 2015)
    - ``head``: the input of the head

    Dropout within feed-forwards, on relative positions and on the output of the encoder stays off
    where it is; otherwise it has the rate of ``encoder``.
    """

    encoder: DropoutConfig | None = None
    mixer: float | None = Field(default=None, ge=0, lt=1)
    embeddings: float | None = Field(default=None, ge=0, lt=1)
    words: float | None = Field(default=None, ge=0, lt=1)
    head: float = Field(default=0.1, ge=0, lt=1)

    @staticmethod
    def everywhere(rate: float, recipe: Recipe) -> "FineTuningDropout":
        """Return one rate for hidden states, attention and head; locked dropout stays locked."""
        is_locked = isinstance(recipe.encoder.dropout, LockedDropoutConfig)
        has_mixer_dropout = "dropout" in type(recipe.encoder.mixer).model_fields
        return FineTuningDropout(
            encoder=LockedDropoutConfig(input=rate, hidden=rate, output=rate)
            if is_locked
            else rate,
            mixer=rate if has_mixer_dropout else None,
            head=rate,
        )

    def apply_to(self, recipe: Recipe) -> Recipe:
        """Return the recipe with these rates.

        Errors: UserError for a mixer without dropout.
        """
        encoder = recipe.encoder
        mixer, embeddings = encoder.mixer, encoder.embeddings
        if self.mixer is not None:
            if "dropout" not in type(mixer).model_fields:
                raise UserError(
                    f"dropout.mixer: a mixer of kind {mixer.kind_name()} has no dropout: leave it "
                    f"out"
                )
            mixer = mixer.model_copy(update={"dropout": self.mixer})
        rates = {"embedding_dropout": self.embeddings, "word_dropout": self.words}
        embeddings = embeddings.model_copy(
            update={name: rate for name, rate in rates.items() if rate is not None}
        )
        hidden = encoder.dropout if self.encoder is None else self.encoder
        parts = {"dropout": hidden, "mixer": mixer, "embeddings": embeddings}
        if isinstance(self.encoder, int | float):
            parts |= _further_rates(encoder, self.encoder)
        return recipe.model_copy(update={"encoder": encoder.model_copy(update=parts)})


def _further_rates(encoder: EncoderConfig, rate: float) -> dict[str, Any]:
    """Return the parts of an encoder that have dropout of their own, with a rate."""
    parts: dict[str, Any] = {}
    if encoder.positions.has_dropout:
        parts["positions"] = encoder.positions.model_copy(update={"dropout": rate})
    if encoder.feed_forward.dropout:
        parts["feed_forward"] = encoder.feed_forward.model_copy(update={"dropout": rate})
    if encoder.output_dropout:
        parts["output_dropout"] = rate
    return parts
