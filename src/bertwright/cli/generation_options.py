"""Options of verbs that predict with a model whose predictions are generated text."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from bertwright.models.text_model import TextModel
    from bertwright.tasks.ensemble import Ensemble


@dataclass(frozen=True)
class GenerationOptions:
    """The options that replace the generation settings of a text-to-text model."""

    num_beams: Annotated[
        int | None, typer.Option(min=1, help="Generated text: beam search with N beams.")
    ] = None
    length_penalty: Annotated[
        float | None, typer.Option(help="Generated text: exponent of the length in beam scores.")
    ] = None
    temperature: Annotated[
        float | None, typer.Option(help="Generated text: sampling temperature; 0 is greedy.")
    ] = None
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Generated text: sample from the K best tokens.")
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(help="Generated text: sample from the best tokens with this probability."),
    ] = None
    generation_seed: Annotated[
        int | None, typer.Option(min=0, help="Generated text: random seed of sampling.")
    ] = None

    def stated(self) -> dict[str, Any]:
        """Return the settings that are on the command line."""
        settings = {name: value for name, value in asdict(self).items() if value is not None}
        if "generation_seed" in settings:
            settings["seed"] = settings.pop("generation_seed")
        return settings

    def apply(self, model: "TextModel | Ensemble") -> None:
        """Set them for the predictions of a model; UserError if it does not generate text."""
        from bertwright.core.errors import UserError
        from bertwright.tasks.fine_tuned_model import FineTunedModel

        if not (settings := self.stated()):
            return
        if not isinstance(model, FineTunedModel):
            raise UserError(
                f"{', '.join(settings)}: settings of one fine-tuned model: use generate for a "
                f"pre-trained one, or leave out --ensemble"
            )
        model.set_generation(**settings)
