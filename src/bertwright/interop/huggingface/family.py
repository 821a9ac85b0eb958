"""What a family of stock classes is: its tensor names, its configuration keys, and the axes that it
has no choice about.

One description serves both directions. Reading, a configuration becomes the axes of a recipe.
Writing, the axes of a recipe become a configuration, or the reasons why this family cannot compute
the recipe.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from bertwright.axes import quoted
from bertwright.encoder.mixers.attention import AttentionChoice
from bertwright.encoder.stream import Coordinates
from bertwright.encoder.visibility import Bidirectional, Visibility
from bertwright.errors import UserError
from bertwright.interop.huggingface.purposes import (
    BARE,
    MASKED,
    POOLER,
    Classifier,
    Net,
    reads_output,
    task_purpose,
)
from bertwright.interop.huggingface.renaming import Table, Tensors, prefixed, stock_names
from bertwright.objectives.masked import Masked
from bertwright.recipes import Recipe
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Specials

Config = dict[str, Any]


@dataclass(frozen=True)
class Key:
    """A key of config.json, the recipe key that says the same, and what the stock class takes where
    a file does not state it. ``values`` translates (theirs to ours) where the words differ."""

    theirs: str
    ours: str
    default: Any
    values: Mapping[Any, Any] | None = None

    def read(self, config: Config) -> Any:
        """Our value for what a configuration says."""
        value = config.get(self.theirs, self.default)
        if self.values is None:
            return value
        if not isinstance(value, Hashable) or value not in self.values:
            known = ", ".join(map(str, self.values))
            raise UserError(f"{self.theirs} is {quoted(value)}: what can be read is {known}")
        return self.values[value]

    def written(self, value: Any) -> Any:
        """Their value for ours; None where they have none."""
        if self.values is None:
            return value
        return next((theirs for theirs, ours in self.values.items() if ours == value), None)


NOWHERE: dict[str, tuple[Any, ...]] = {
    "decoder": (None,),
    "decoder.mixer": (None,),
    "encoder.bottleneck": (None,),
    "encoder.cut": (None,),
    "encoder.depth.every": (1,),
    "encoder.depth.order": ("sf",),
    "encoder.depth.sharing": ("none",),
    "encoder.embeddings.asking": (False,),
    "encoder.embeddings.languages": ([],),
    "encoder.embeddings.scaled": (False,),
    "encoder.embeddings.tasks": (0,),
    "encoder.feed_forward.gate": ("first",),
    "encoder.local": (None,),
    "encoder.mixer.gate": (None,),
    "encoder.mixer.global_projections": (False,),
    "encoder.mixer.scaled": (True,),
    "encoder.mixer.width": (None,),
    "encoder.norm.gain": (True,),
    "encoder.norm.skip_first": (False,),
    "encoder.residual.kind": ("plain",),
    "encoder.residual.start": (0,),
    "output.norm": (None,),
    "output.scaled": (False,),
}
"""Axes on which hardly any stock class has a choice, and what comes to having none."""

TIE = Key("tie_word_embeddings", "output.kind", True, {True: "tied", False: "untied"})


class Family:
    """The stock classes around one encoder."""

    model_type: ClassVar[str]
    class_name: ClassVar[str]
    recipe: ClassVar[str]
    """The recipe of ours that says how an imported model would be trained further."""
    purposes: ClassVar[Mapping[tuple[bool, str | None], str]] = {
        (True, None): MASKED,
        (False, None): BARE,
    }
    """The stock classes of pre-training: whether they name pieces, and the objective of ours whose
    head they have beside that."""
    outputs: ClassVar[Mapping[str, str]] = {}
    """What a stock class calls the outputs of the head of an objective."""
    asks: ClassVar[str] = "masked"
    """The objective that trains the output over the vocabulary."""
    visibility: ClassVar[Visibility] = Bidirectional()
    prefix: ClassVar[str]
    """The name of the encoder within a stock class that has a head."""
    encoder_table: ClassVar[Table]
    head_table: ClassVar[Table]
    """The heads of pre-training."""
    classifiers: ClassVar[dict[str, Classifier]]
    """The heads of tasks, by the purpose of their stock class."""
    pieces: ClassVar[str]
    """The table of pieces, within the encoder."""
    decoder: ClassVar[str]
    """The layer over the vocabulary: what stock classes compute with, where a file states it."""
    output_bias: ClassVar[str | None] = None
    """The bias over the vocabulary, where it is not stated as the decoder's; None for none."""
    keys: ClassVar[tuple[Key, ...]]
    axes: ClassVar[dict[str, tuple[Any, ...]]]
    """The axes without a key, and what of them the stock classes can compute: first what they are,
    then what comes to the same."""
    nowhere: ClassVar[Mapping[str, tuple[Any, ...]]] = NOWHERE
    """More of them, that are not worth a word where a recipe has no such axis, or the family has
    its own there."""
    tie: ClassVar[Key] = TIE
    """Whether pieces are named by the table that embeds them."""
    reads_padding: ClassVar[bool] = False
    """Whether the padding of a row changes what the stock classes make of it."""
    embedded: ClassVar[tuple[str, ...]] = ()
    """Other names of the table of pieces, beside that of the decoder: a file may hold it under any
    of them, or under several."""
    unread: ClassVar[tuple[str, ...]] = ()
    """What old files hold and stock classes do not read."""
    longest: ClassVar[int]
    """The longest row, where a file does not state it."""
    special_pieces: ClassVar[Mapping[str, str]] = {}
    """Pieces of published vocabularies that have other roles than their names say, by the role."""
    required: ClassVar[dict[str, Any]] = {}
    """Keys of config.json that must have this value where they are stated."""

    @property
    def table_of_pieces(self) -> str:
        """The table of pieces in a stock class that has a head."""
        return f"{self.prefix}.{self.pieces}"

    def simplified(self, config: Config) -> Config:
        """A configuration as the keys read it; UserError where it says what we cannot express."""
        return config

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        """A configuration with what is not a key of its own."""
        return config

    def described(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The settings of a recipe, once all keys are read."""
        return settings

    def completed(self, net: Net) -> Tensors:
        """The parameters of a model as a stock class needs them, by our names."""
        return dict(net.named_parameters())

    def without_pooler(self, net: Net) -> Tensors:
        """Zeros for the pooler of a bare stock class, which would draw it at random."""
        if self.purpose(net) != BARE or not stock_names(self.table(BARE), f"{POOLER}.weight"):
            return {}
        width = net.recipe.encoder.width
        return {f"{POOLER}.weight": torch.zeros(width, width), f"{POOLER}.bias": torch.zeros(width)}

    def received(self, tensors: Tensors, config: Config) -> Tensors:
        """The parameters of a stock class, by our names, as our model has them."""
        return tensors

    def as_stock(self, tensors: Tensors, net: Net) -> Tensors:
        """Tensors by their stock names, in the shapes that the stock class has."""
        return tensors

    def from_stock(self, tensors: Tensors) -> Tensors:
        """Tensors by their stock names, in the shapes of ours."""
        return tensors

    def inputs(self, rule: Visibility, coordinates: Coordinates) -> Mapping[str, Tensor]:
        """What the stock class must be told with a batch so that it sees what a rule lets see."""
        return {}

    def told(self, rule: Visibility) -> str:
        """What the stock class must be told beside a text to compute the same, for the model
        card."""
        return ""

    def longest_alike(self, recipe: Recipe) -> int | None:
        """The longest row on which the stock class computes what a recipe does; None for any."""
        return None

    def lacks_alone(self, recipe: Recipe, longest: int | None) -> str | None:
        """Why the bare stock class makes other states of texts of at most so many pieces where it
        is given these alone, in words; None where it makes the same."""
        if told := self.told(recipe.encoder.visibility):
            return f"{self.class_name} must be told more than a text: {told}"
        alike = self.longest_alike(recipe)
        if alike is not None and (longest is None or longest > alike):
            return f"{self.class_name} makes other states of texts of more than {alike} pieces"
        return None

    def purpose(self, net: Net) -> str:
        """Which stock class a model becomes; what it has no place for is left behind."""
        if isinstance(net, TaskModel):
            return task_purpose(net)
        names_pieces = net.output is not None
        for (named, head), purpose in self.purposes.items():
            if named == names_pieces and head is not None and head in net.heads:
                return purpose
        return self.purposes[names_pieces, None]

    def head(self, purpose: str) -> str | None:
        """The objective whose head a stock class of pre-training has."""
        return next((h for (_, h), p in self.purposes.items() if p == purpose), None)

    def left_behind(self, net: Net) -> list[str]:
        """The objectives whose heads no stock class has."""
        if isinstance(net, TaskModel):
            return []
        return [name for name in net.heads if name != self.head(self.purpose(net))]

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        """Why this family cannot compute a recipe, beyond its axes."""
        return []

    def table(self, purpose: str) -> Table:
        """Every name of the stock class for a purpose."""
        if purpose == BARE:
            return self.encoder_table
        encoder = prefixed(self.prefix, self.encoder_table)
        if purpose in self.classifiers:
            return self.classifiers[purpose].table + encoder
        head = self.head(purpose)
        if head is not None:
            encoder = tuple((f"heads.{head}.pooler" if o == POOLER else o, t) for o, t in encoder)
        return encoder + self.head_table

    def settings(self, config: Config) -> dict[str, Any]:
        """The ``encoder`` and ``output`` of the recipe that a configuration describes, and the
        ``length`` of its rows.

        Errors: UserError that names the key of config.json that we have no axis for.
        """
        for name, value in self.required.items():
            if config.get(name, value) != value:
                raise UserError(f"{name} is {quoted(config[name])}: what can be read is {value!r}")
        config = self.simplified(config)
        settings: dict[str, Any] = {}
        for path, choices in self.axes.items():
            _put(settings, path, choices[0])
        for key in (*self.keys, self.tie):
            _put(settings, key.ours, key.read(config))
        longest = config.get("max_position_embeddings", self.longest)
        _put(settings, "assembly.length", longest)
        _put(settings, "encoder.initialisation.kind", "published")
        _put(settings, "encoder.initialisation.std", config.get("initializer_range", 0.02))
        return self.described(settings)

    def config(self, net: Net, specials: Specials) -> Config:
        """The configuration of the stock class for a model that ``reasons`` has nothing against."""
        stated = _stated(net.recipe)
        config: Config = {
            "architectures": [self.class_name + self.purpose(net)],
            "model_type": self.model_type,
            "vocab_size": net.vocabulary_size,
            **{key.theirs: key.written(_get(stated, key.ours)) for key in self._keys(net)},
        }
        return self.finished(config, net.recipe, specials)

    def reasons(self, net: Net, specials: Specials) -> list[str]:
        """Why no stock class of this family computes a model; nothing where one does."""
        return [
            *self._reasons_of_objectives(net),
            *self._reasons_of_axes(net),
            *self._reasons_of_keys(net),
            *self._reasons_of_heads(net),
            *self.further_reasons(net.recipe, specials),
        ]

    def _keys(self, net: Net) -> list[Key]:
        """The keys that count: those of the output only where it is read."""
        keys = (*self.keys, self.tie)
        return [k for k in keys if reads_output(net) or not k.ours.startswith("output.")]

    def _reasons_of_axes(self, net: Net) -> Iterator[str]:
        stated = _stated(net.recipe)
        own = [*self.axes, *(key.ours for key in (*self.keys, self.tie))]
        usual = {
            path: choices
            for path, choices in self.nowhere.items()
            if not any(f"{name}.".startswith(f"{path}.") for name in own)
        }
        for path, choices in {**usual, **self.axes}.items():
            value = _get(stated, path)
            unused = path.startswith("output.") and not reads_output(net)
            absent = value is None and path not in self.axes
            if value not in choices and not unused and not absent:
                yield f"{path} is {_shown(value)} ({self.class_name}: {_shown(choices[0])})"

    def _reasons_of_keys(self, net: Net) -> Iterator[str]:
        stated = _stated(net.recipe)
        written: dict[str, Any] = {}
        for key in self._keys(net):
            value = _get(stated, key.ours)
            theirs = key.written(value)
            known = " or ".join(dict.fromkeys(map(_shown, (key.values or {}).values())))
            if key.ours.endswith("dropout") and isinstance(value, Mapping):
                yield f"{key.ours} is {_shown(value)} ({self.class_name}: one rate)"
            elif key.values is not None and theirs is None:
                yield f"{key.ours} is {_shown(value)} ({self.class_name}: {known})"
            elif written.setdefault(key.theirs, theirs) != theirs:
                yield f"{key.ours} is {_shown(value)} ({self.class_name}: one {key.theirs} for all)"

    def _reasons_of_heads(self, net: Net) -> Iterator[str]:
        purpose = self.purpose(net)
        if isinstance(net, TaskModel):
            if purpose in self.classifiers:
                yield from self.classifiers[purpose].reasons(net, self.class_name)
            else:
                yield f"a head for a task is not written ({self.class_name}: that of pre-training)"
        elif net.pooler is not None and not stock_names(self.table(purpose), f"{POOLER}.weight"):
            yield f"pooler is true ({self.class_name}: none)"

    def _reasons_of_objectives(self, net: Net) -> Iterator[str]:
        """Why the stock class would read the answers of a recipe wrongly."""
        recipe = net.recipe
        if isinstance(net, TaskModel) or not recipe.objectives:
            return
        phase = len(recipe.phases) - 1
        last, turns = recipe.objectives_of(phase), recipe.turns_of(phase)
        if all(turn.visibility & self.visibility != self.visibility for turn in turns):
            first = next(iter(last))
            yield f"objectives.{first} ends the training ({self.class_name}: both sides seen)"
        for name, objective in last.items():
            if isinstance(objective, Masked) and objective.shift:
                yield (
                    f"objectives.{name}.shift ends as {objective.shift} ({self.class_name}: 0, "
                    f"answered at the place itself)"
                )


def _stated(recipe: Recipe) -> dict[str, Any]:
    """A recipe as data, with the widths that follow from others spelled out."""
    stated = recipe.as_dict()
    encoder = recipe.encoder
    stated["encoder"]["embeddings"]["width"] = encoder.table_width
    width = encoder.inner_width
    stated["encoder"]["feed_forward"]["width"] = encoder.feed_forward.inner(width)
    if isinstance(encoder.mixer, AttentionChoice):
        shape = encoder.mixer.shape(width)
        inner = None if shape.inner == width else shape.inner
        own = {"heads": shape.heads, "head_width": shape.head_width, "width": inner}
        stated["encoder"]["mixer"].update(own)
    if recipe.decoder is not None:
        decoder = recipe.decoder.of(encoder).model_dump(mode="json", by_alias=True)
        own = {"layers": decoder["depth"]["layers"], "positions": decoder["positions"]}
        stated["decoder"].update(own)
    return stated


def _get(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _put(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        data = data.setdefault(part, {})
    data[last] = value


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "stated"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
