"""What a family of stock classes is: its tensor names, its configuration keys, and the axes that it
has no choice about.

One description serves both directions. Reading, a configuration becomes the axes of a recipe.
Writing, the axes of a recipe become a configuration, or the reasons why this family cannot compute
the recipe.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from bertwright.encoder.mixers.attention import AttentionChoice
from bertwright.encoder.visibility import Bidirectional
from bertwright.errors import UserError
from bertwright.interop.huggingface.renaming import Table, Tensors, prefixed, stock_names
from bertwright.model import Model
from bertwright.objectives.masked import Masked
from bertwright.objectives.objective import visibility_of
from bertwright.recipes import Recipe
from bertwright.text.tokenizers import Specials

Config = dict[str, Any]

POOLER, POOLER_OF_PAIRS = "pooler", "heads.next-sentence.pooler"
"""Where a pooler lies in our model: on its own, or in the head that it was trained with."""


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
        if value not in self.values:
            known = ", ".join(map(str, self.values))
            raise UserError(f"{self.theirs} is {value!r}: what can be read is {known}")
        return self.values[value]

    def written(self, value: Any) -> Any:
        """Their value for ours; None where they have none."""
        if self.values is None:
            return value
        return next((theirs for theirs, ours in self.values.items() if ours == value), None)


TIE = Key("tie_word_embeddings", "output.kind", True, {True: "tied", False: "untied"})


class Family:
    """The stock classes around one encoder."""

    model_type: ClassVar[str]
    class_name: ClassVar[str]
    recipe: ClassVar[str]
    """The recipe of ours that says how an imported model would be trained further."""
    prefix: ClassVar[str]
    """The name of the encoder within a stock class that has a head."""
    encoder_table: ClassVar[Table]
    head_table: ClassVar[Table]
    pieces: ClassVar[str]
    """The table of pieces, within the encoder."""
    decoder: ClassVar[str]
    """The layer over the vocabulary: what stock classes compute with, where a file states it."""
    output_bias: ClassVar[str]
    """The bias over the vocabulary, where it is not stated as the decoder's."""
    keys: ClassVar[tuple[Key, ...]]
    axes: ClassVar[dict[str, tuple[Any, ...]]]
    """The axes without a key, and what of them the stock classes can compute: first what they are,
    then what comes to the same."""
    longest: ClassVar[int]
    """The longest row, where a file does not state it."""
    required: ClassVar[dict[str, Any]] = {}
    """Keys of config.json that must have this value where they are stated."""

    def simplified(self, config: Config) -> Config:
        """A configuration as the keys read it; UserError where it says what we cannot express."""
        return config

    def finished(self, config: Config, recipe: Recipe, specials: Specials) -> Config:
        """A configuration with what is not a key of its own."""
        return config

    def completed(self, model: Model) -> Tensors:
        """The parameters of a model as a stock class needs them, by our names."""
        return dict(model.named_parameters())

    def further_reasons(self, recipe: Recipe, specials: Specials) -> list[str]:
        """Why this family cannot compute a recipe, beyond its axes."""
        return []

    def architecture(self, model: Model) -> str:
        """The stock class for the heads that a model has."""
        suffix = {
            (True, True): "ForPreTraining",
            (True, False): "ForMaskedLM",
            (False, True): "ForNextSentencePrediction",
            (False, False): "Model",
        }[model.output is not None, "next-sentence" in model.heads]
        return self.class_name + suffix

    def table(self, headed: bool, pairs: bool) -> Table:
        """Every name of a stock class: with or without a head, trained on pairs or not."""
        encoder = self.encoder_table
        if pairs:
            encoder = tuple((POOLER_OF_PAIRS if o == POOLER else o, t) for o, t in encoder)
        return prefixed(self.prefix, encoder) + self.head_table if headed else encoder

    def settings(self, config: Config) -> dict[str, Any]:
        """The ``encoder`` and ``output`` of the recipe that a configuration describes, and the
        ``length`` of its rows.

        Errors: UserError that names the key of config.json that we have no axis for.
        """
        for name, value in self.required.items():
            if config.get(name, value) != value:
                raise UserError(f"{name} is {config[name]!r}: what can be read is {value!r}")
        config = self.simplified(config)
        settings: dict[str, Any] = {}
        for path, choices in self.axes.items():
            _put(settings, path, choices[0])
        for key in (*self.keys, TIE):
            _put(settings, key.ours, key.read(config))
        longest = config.get("max_position_embeddings", self.longest)
        _put(settings, "assembly.length", longest)
        _put(settings, "encoder.initialisation.kind", "published")
        _put(settings, "encoder.initialisation.std", config.get("initializer_range", 0.02))
        return settings

    def config(self, model: Model, specials: Specials) -> Config:
        """The configuration of the stock class for a model that ``reasons`` has nothing against."""
        stated = _stated(model.recipe)
        config: Config = {
            "architectures": [self.architecture(model)],
            "model_type": self.model_type,
            "vocab_size": model.vocabulary_size,
            **{key.theirs: key.written(_get(stated, key.ours)) for key in self._keys(model)},
        }
        return self.finished(config, model.recipe, specials)

    def reasons(self, model: Model, specials: Specials) -> list[str]:
        """Why no stock class of this family computes a model; nothing where one does."""
        return [
            *self._reasons_of_axes(model),
            *self._reasons_of_keys(model),
            *self._reasons_of_heads(model),
            *self.further_reasons(model.recipe, specials),
        ]

    def _keys(self, model: Model) -> list[Key]:
        """The keys that count: those of the output only where there is one."""
        keys = (*self.keys, TIE)
        return [k for k in keys if model.output is not None or not k.ours.startswith("output.")]

    def _reasons_of_axes(self, model: Model) -> Iterator[str]:
        stated = _stated(model.recipe)
        for path, choices in self.axes.items():
            value = _get(stated, path)
            unused = model.output is None and path.startswith("output.")
            if value not in choices and not unused:
                yield f"{path} is {_shown(value)} ({self.class_name}: {_shown(choices[0])})"

    def _reasons_of_keys(self, model: Model) -> Iterator[str]:
        stated = _stated(model.recipe)
        written: dict[str, Any] = {}
        for key in self._keys(model):
            value = _get(stated, key.ours)
            theirs = key.written(value)
            known = " or ".join(dict.fromkeys(map(_shown, (key.values or {}).values())))
            if theirs is None:
                yield f"{key.ours} is {_shown(value)} ({self.class_name}: {known})"
            elif written.setdefault(key.theirs, theirs) != theirs:
                yield f"{key.ours} is {_shown(value)} ({self.class_name}: one {key.theirs} for all)"

    def _reasons_of_heads(self, model: Model) -> Iterator[str]:
        table = self.table(headed=True, pairs="next-sentence" in model.heads)
        names = [name for name, _ in model.named_parameters() if not stock_names(table, name)]
        heads = {name.split(".")[1] for name in names if name.startswith("heads.")}
        yield from (
            f"objectives.{head} ({self.class_name}: no such head)" for head in sorted(heads)
        )
        if f"{POOLER}.weight" in names:
            yield f"pooler is true ({self.class_name}: none)"


def reasons_of_objectives(recipe: Recipe) -> Iterator[str]:
    """Why any stock class would read the answers of a recipe wrongly."""
    if not recipe.objectives:
        return
    last = recipe.objectives_of(len(recipe.phases) - 1)
    if visibility_of(list(last.values())) != Bidirectional():
        yield f"objectives.{next(iter(last))} ends the training (stock classes: both sides seen)"
    for name, objective in last.items():
        if isinstance(objective, Masked) and objective.shift:
            yield (
                f"objectives.{name}.shift ends as {objective.shift} (stock classes: 0, answered at "
                f"the place itself)"
            )


def _stated(recipe: Recipe) -> dict[str, Any]:
    """A recipe as data, with the widths that follow from others spelled out."""
    stated = recipe.as_dict()
    encoder = recipe.encoder
    stated["encoder"]["feed_forward"]["width"] = encoder.feed_forward.inner(encoder.width)
    if isinstance(encoder.mixer, AttentionChoice):
        stated["encoder"]["mixer"]["heads"] = encoder.mixer.num_heads(encoder.width)
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
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
