"""What is analysed: a model, and what it has inside."""

import fnmatch
import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import nn

from bertwright.encoder.encoder import Encoder
from bertwright.errors import UserError
from bertwright.model.model import Model
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import FineTuned
from bertwright.tasks.task import described
from bertwright.text.tokenizers import Tokenizer

USUAL = tuple(f".attention.{name}" for name in ("query", "key", "value", "scores", "weights"))
"""What places that see everything may have of their own beside (Beltagy et al. 2020): theirs is not
among these."""


@dataclass(frozen=True)
class Subject:
    """A model by its name, with weights in float32."""

    name: str
    text_model: TextModel

    @property
    def encoder(self) -> Encoder:
        """Whose values are looked at."""
        return self.text_model.model.encoder

    @property
    def tokenizer(self) -> Tokenizer:
        """By which texts become pieces."""
        return self.text_model.tokenizer

    @property
    def num_layers(self) -> int:
        """How often blocks are applied, whether or not they share their weights."""
        return self.encoder.running

    @cached_property
    def layer_heads(self) -> tuple[int, ...]:
        """How many heads every layer has."""
        choice = self.text_model.model.recipe.encoder
        widths = [inner for _, inner in choice.inner_widths]
        return tuple(choice.mixer_at(n).shape(widths[n]).heads for n in range(self.num_layers))

    @property
    def num_heads(self) -> int:
        """Of every layer; where layers differ, of the one that has most."""
        return max(self.layer_heads, default=0)

    @property
    def size(self) -> str:
        """Its layers and heads, in words."""
        if not self.layer_heads:
            return "no layers"
        fewest, most = min(self.layer_heads), self.num_heads
        heads = f"{most}" if fewest == most else f"{fewest} to {most}"
        return f"{self.num_layers} layers of {heads} heads"

    @cached_property
    def digest(self) -> str:
        """Of the weights: what is said of a model is said of these."""
        return _digest(self.text_model.model)

    @cached_property
    def identity(self) -> str:
        """Of everything that an answer of it hangs on: weights, those of a head as well, recipe,
        tokenizer, and task."""
        own = self.text_model
        told = [self.digest, own.model.recipe.model_dump_json(), self.tokenizer.hash]
        if isinstance(own, FineTuned):
            reads = [own.maker.length, own.temperature, own.net.choice.model_dump_json()]
            told += [_digest(own.net), json.dumps([described(own.task), *reads])]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]

    def untrained(self, seed: int = 0) -> "Subject":
        """The same with parameters as they are drawn: what an architecture does by itself."""
        own, tokenizer = self.text_model.model, self.tokenizer
        recipe = own.recipe.model_copy(update={"seed": seed})
        model = Model.build(recipe, tokenizer.size, tokenizer).to(own.embedding.dtype)
        return Subject(f"{self.name}, untrained", TextModel(model, tokenizer, "float32"))

    def lacks(self, *sites: str) -> str | None:
        """Why it has no such values, in words; None where it has. Layers are laid beside each
        other: all have them, and of heads as many."""
        by_head = [site for site in sites if ".attention." in site and not site.endswith(".output")]
        if by_head and not self.layer_heads:
            return "a model without blocks"
        if by_head and min(self.layer_heads) < self.num_heads:
            return f"a model of {self.size}: it needs as many in each"
        if self.encoder.tells_wide and any(site.endswith(USUAL) for site in sites):
            return "places that see everything have projections of their own"
        special = self.tokenizer.specials
        pieces = torch.tensor([[special.start, special.unknown, special.end]])
        try:
            with torch.inference_mode(), self.encoder.record(*sites) as values:
                self.encoder(pieces.to(self.text_model.device))
        except UserError as error:
            return str(error)
        for site in sites:
            if site.startswith("blocks.*.") and len(fnmatch.filter(values, site)) < self.num_layers:
                return f"some blocks have no {site.split('.')[2].replace('_', '-')}"
        return None


def _digest(module: nn.Module) -> str:
    found = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]
