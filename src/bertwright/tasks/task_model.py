"""What solves a task: an encoder and a head; and what is trained for one task or several."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertwright.encoder.encoder import Encoder
from bertwright.encoder.kernels.noise import Noise
from bertwright.encoder.stream import Coordinates
from bertwright.model.folder import fill, make_room
from bertwright.model.grids import Grid
from bertwright.model.layers import Layers
from bertwright.model.memory import require_memory
from bertwright.recipes import Recipe
from bertwright.tasks.adaptation import Adaptation, Full
from bertwright.tasks.heads import Beginning, Head, HeadChoice


@dataclass(frozen=True)
class HeadPlan:
    """The head of a task before it is built: its choice, its outputs, and the kind of answer."""

    choice: HeadChoice
    num_outputs: int
    answer: str = ""


class TaskModel(nn.Module):
    """An encoder and the head of a task; ``adaptation`` says what was added to the encoder."""

    def __init__(
        self,
        recipe: Recipe,
        vocabulary_size: int,
        plan: HeadPlan,
        adaptation: Adaptation | None = None,
    ) -> None:
        super().__init__()
        self.recipe, self.plan = recipe, plan
        self.vocabulary_size = vocabulary_size
        self.adaptation = adaptation or Full()
        self.encoder = Encoder(recipe.encoder, vocabulary_size)
        self.adaptation.insert(self.encoder)
        self.head = plan.choice.build(Beginning(recipe, plan.num_outputs))

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates,
        where: Tensor | None = None,
        sizes: Sequence[int] = (),
    ) -> Tensor:
        """pieces (B, L) int64 to float32 outputs (B, K), or (M, K) for the places at ``where``."""
        wanted = self.head.places(pieces, coordinates.document, where)
        states = self.head.layers.states(self.encoder, pieces, coordinates, wanted=wanted)
        return self.head(states, coordinates.document, sizes)

    @property
    def choice(self) -> HeadChoice:
        """Of the head."""
        return self.plan.choice

    @property
    def grids(self) -> dict[str, Grid]:
        """On which grids its weights stand, by name; of others nothing is known."""
        return {f"encoder.{n}": grid for n, grid in self.adaptation.grids(self.encoder).items()}

    @staticmethod
    def empty(
        recipe: Recipe,
        vocabulary_size: int,
        plan: HeadPlan,
        adaptation: Adaptation | None = None,
    ) -> "TaskModel":
        """A model whose parameters are yet to be filled in, on the CPU."""
        with torch.device("meta"):
            model = TaskModel(recipe, vocabulary_size, plan, adaptation)
        require_memory(model, recipe.name)
        make_room(model)
        return model


class Adapted(nn.Module):
    """An encoder with the heads of one or several tasks, and what adaptation adds, in training.

    ``rate`` is that of the dropout in the heads; that of the encoder stands in its recipe. Of the
    vocabulary its table has ``num_rows`` only, where that is stated. With ``names`` it has the
    output over the vocabulary as well. ``teaching`` is what a teacher trains beside.
    """

    def __init__(
        self,
        recipe: Recipe,
        vocabulary_size: int,
        plans: Sequence[HeadPlan],
        adaptation: Adaptation,
        rate: float,
        names: bool = False,
        num_rows: int | None = None,
    ) -> None:
        super().__init__()
        self.recipe, self.plans, self.adaptation = recipe, tuple(plans), adaptation
        self.vocabulary_size = vocabulary_size
        self.encoder = Encoder(recipe.encoder, num_rows or vocabulary_size)
        adaptation.insert(self.encoder)
        self.changes = adaptation.changes(self.encoder)
        heads = [plan.choice.build(Beginning(recipe, plan.num_outputs, rate)) for plan in plans]
        self.heads = nn.ModuleList(heads)
        self.output = recipe.output.build(recipe.encoder, vocabulary_size) if names else None
        if self.output is not None:
            self.output.share(self.encoder.embeddings)
        self.teaching: nn.Module | None = None

    @staticmethod
    def empty(
        recipe: Recipe,
        vocabulary_size: int,
        plans: Sequence[HeadPlan],
        adaptation: Adaptation,
        rate: float,
        names: bool = False,
        num_rows: int | None = None,
    ) -> "Adapted":
        """One whose parameters are yet to be filled in, on the CPU."""
        with torch.device("meta"):
            model = Adapted(recipe, vocabulary_size, plans, adaptation, rate, names, num_rows)
        require_memory(model, recipe.name)
        make_room(model)
        return model

    def head(self, part: int) -> Head:
        """The head of one of the tasks."""
        found = self.heads[part]
        assert isinstance(found, Head)
        return found

    def states(
        self,
        part: int,
        pieces: Tensor,
        coordinates: Coordinates,
        wanted: Tensor | None = None,
        noise: Noise | None = None,
    ) -> Tensor:
        """pieces (B, L) int64 to the states (B, L, W) of the layers that the head of a task reads,
        or (M, W) of the ``wanted`` flat places (M,)."""
        layers = self.head(part).layers
        if self.changes is None:
            return layers.states(self.encoder, pieces, coordinates, noise, wanted)
        changed = self.changes(dict(self.encoder.named_parameters()))
        reading = _Reading(self.encoder, layers)
        named = {f"encoder.{name}": weight for name, weight in changed.items()}
        given = (pieces, coordinates, noise, wanted)
        with self.changes.reading(coordinates.document, wanted):
            # Blocks that share a sublayer share the module: it is changed once, under its first
            # name.
            return functional_call(reading, named, given, tie_weights=False)

    def answer(
        self,
        part: int,
        states: Tensor,
        document: Tensor | None,
        sizes: Sequence[int] = (),
        noise: Noise | None = None,
        first_answer: int = 0,
    ) -> Tensor:
        """states (B, L, W), or (M, W) of the places that the head reads, to the float32 outputs of
        a task, (B, K), or (M, K) where each row has so many (``sizes``).

        ``first_answer`` is the index of the first of them in the step: what dropout hangs on.
        """
        return self.head(part)(states, document, sizes, self.behind(noise, first_answer))

    def behind(self, noise: Noise | None, first_answer: int) -> Noise | None:
        """The noise of a head."""
        if noise is None:
            return None
        first = torch.full_like(noise.first_row, first_answer)
        return replace(noise.within(len(self.encoder.blocks)), first_row=first)

    def task_model(self, part: int, parameters: Mapping[str, Tensor]) -> TaskModel:
        """What solves one of the tasks with these parameters, the whole table among them, on the
        CPU in float32."""
        model = TaskModel.empty(
            self.recipe, self.vocabulary_size, self.plans[part], self.adaptation.left
        )
        known = {**parameters, **dict(self.named_buffers())}
        if self.changes is not None:
            known |= self._merged(parameters)
        head = f"heads.{part}."
        own = {n: t for n, t in known.items() if n.startswith("encoder.")}
        own |= {f"head.{n.removeprefix(head)}": t for n, t in known.items() if n.startswith(head)}
        fill(model, own, "snapshot")
        return model

    @torch.no_grad()
    def _merged(self, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The changed weights of the encoder, of float32 parameters."""
        assert self.changes is not None
        of_encoder = {
            name.removeprefix("encoder."): tensor
            for name, tensor in parameters.items()
            if name.startswith("encoder.")
        }
        own = {
            n.removeprefix("changes."): t for n, t in parameters.items() if n.startswith("changes.")
        }
        self.changes.eval()
        changed = functional_call(self.changes, own, (of_encoder,))
        self.changes.train()
        return {f"encoder.{name}": weight for name, weight in changed.items()}


class _Reading(nn.Module):
    """The states of some layers, as a module whose weights can be given."""

    def __init__(self, encoder: Encoder, layers: Layers) -> None:
        super().__init__()
        self.encoder, self.layers = encoder, layers

    def forward(
        self,
        pieces: Tensor,
        coordinates: Coordinates,
        noise: Noise | None,
        wanted: Tensor | None,
    ) -> Tensor:
        return self.layers.states(self.encoder, pieces, coordinates, noise, wanted)
