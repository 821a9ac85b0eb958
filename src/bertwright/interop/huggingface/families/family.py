"""A family of stock classes: tensor names, configuration keys, and fixed axes.

One description serves both directions: on import, a configuration becomes the axes of a recipe; on
export, the axes become a configuration, or a list of reasons why the family cannot compute the
recipe.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from bertwright.core.config import quote
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import SpecialTokens
from bertwright.interop.huggingface.families.config_keys import (
    TIE_KEY,
    UNSUPPORTED_AXES,
    ConfigKey,
    StockConfig,
)
from bertwright.interop.huggingface.head_types import (
    BASE,
    MASKED_LM,
    POOLER,
    EncoderModel,
    StockTaskHead,
    task_head_type,
    uses_output_layer,
)
from bertwright.interop.huggingface.tensor_names import (
    StateDict,
    TensorNameTable,
    add_prefix,
    fill_prefix,
    find_stock_names,
)
from bertwright.models import Model
from bertwright.modules.attention.attention import AttentionConfig
from bertwright.modules.attention.mask import (
    BidirectionalVisibility,
    SameDocumentVisibility,
    Visibility,
)
from bertwright.modules.token_tensors import TokenInfo
from bertwright.recipes import Recipe


class ModelFamily:
    """The stock classes around one kind of encoder."""

    model_type: ClassVar[str]
    class_name: ClassVar[str]
    recipe_name: ClassVar[str]
    """Name of our recipe whose training settings an imported model gets."""
    lm_head_type: ClassVar[str] = MASKED_LM
    objective_head_types: ClassVar[Mapping[tuple[bool, str], str]] = {}
    """Head type by (has LM head, objective with another head)."""
    stock_output_names: ClassVar[Mapping[str, str]] = {}
    """Stock output names by objective."""
    lm_objective: ClassVar[str] = "masked"
    """The objective that trains the LM head."""
    visibility: ClassVar[Visibility] = BidirectionalVisibility()
    base_model_prefix: ClassVar[str]
    """The attribute of a stock class with a head that holds the encoder."""
    encoder_table: ClassVar[TensorNameTable]
    head_table: ClassVar[TensorNameTable]
    """The tensor names of pre-training heads."""
    task_heads: ClassVar[dict[str, StockTaskHead]] = {}
    """The task heads by head type; ``{prefix}`` in a stock name is ``base_model_prefix``."""
    config_keys: ClassVar[tuple[ConfigKey, ...]]
    fixed_axes: ClassVar[dict[str, tuple[Any, ...]]]
    """Axes without a config key: first the value of the stock classes, then equivalent values."""
    unsupported_axes: ClassVar[Mapping[str, tuple[Any, ...]]] = UNSUPPORTED_AXES
    """Further axes, for recipes that have them, unless a key or ``fixed_axes`` covers them."""
    tie_key: ClassVar[ConfigKey] = TIE_KEY
    """Whether the token embedding is also the output table."""
    is_padding_sensitive: ClassVar[bool] = False
    """Whether padding changes the outputs of the stock classes."""
    embedding_aliases: ClassVar[tuple[str, ...]] = ()
    """Other names of the token embedding, except the output layer's."""
    transposed_tensors: ClassVar[tuple[str, ...]] = ()
    """Suffixes of stock tensor names whose matrices are stored transposed."""
    ignored_tensors: ClassVar[tuple[str, ...]] = ()
    """Tensors in old files, which stock classes ignore."""
    default_max_length: ClassVar[int]
    """Maximum length if the configuration has none."""
    published_special_tokens: ClassVar[Mapping[str, str]] = {}
    """Special tokens of published vocabularies with unusual names, by role."""
    token_id_keys: ClassVar[Mapping[str, str]] = {"pad_token_id": "pad"}
    """Keys of special token ids, with their roles."""
    required_config: ClassVar[Mapping[str, Any]] = {}
    """Keys of config.json that must have this value if they are present."""

    @property
    def pretraining_head_types(self) -> Mapping[tuple[bool, str | None], str]:
        """All pre-training head types, by (has LM head, objective)."""
        return {**self.objective_head_types, (True, None): self.lm_head_type, (False, None): BASE}

    @property
    def token_embedding_name(self) -> str:
        """Name of the token embedding in a stock class with a head."""
        table = self.name_table(self.lm_head_type)
        return find_stock_names(table, "encoder.embeddings.tokens.weight")[0]

    @property
    def output_layer_name(self) -> str:
        """Name of the output layer, which stock classes prefer to the tied table if stored."""
        return dict(self.head_table)["output.table"][0]

    @property
    def output_bias_name(self) -> str | None:
        """Name of the output bias, which may be outside of the output layer; None for no bias."""
        names = dict(self.head_table).get("output.bias")
        return None if names is None else names[0]

    def variant_of_config(self, config: StockConfig) -> "ModelFamily":
        """Return the family that reads this configuration."""
        return self

    def variant_of_model(self, model: EncoderModel) -> "ModelFamily":
        """Return the family that writes this model."""
        return self

    def objective_settings(self) -> dict[str, dict[str, Any]]:
        """Return the settings of objectives that a stock class has, by objective."""
        return {}

    def normalise_config(self, config: StockConfig) -> StockConfig:
        """Return the configuration as ``config_keys`` read it; UserError for unsupported values."""
        return config

    def extend_config(self, config: StockConfig, recipe: Recipe) -> StockConfig:
        """Return the configuration, with the keys that no ``ConfigKey`` writes."""
        return config

    def adjust_recipe(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return the recipe settings, adjusted after all keys are read."""
        return settings

    def token_roles(self, recipe: Recipe) -> Mapping[str, str]:
        """Return the keys of special token ids, with their roles, for a recipe."""
        return self.token_id_keys

    def export_tensors(self, model: EncoderModel) -> StateDict:
        """Return the parameters that a stock class needs, by our names."""
        return dict(model.named_parameters())

    def zero_pooler(self, model: EncoderModel) -> StateDict:
        """Return zeros for the pooler of a bare stock class, which would otherwise be random."""
        if self.head_type(model) != BASE or not find_stock_names(
            self.name_table(BASE), f"{POOLER}.weight"
        ):
            return {}
        width = model.recipe.encoder.width
        return {f"{POOLER}.weight": torch.zeros(width, width), f"{POOLER}.bias": torch.zeros(width)}

    def import_tensors(self, tensors: StateDict, config: StockConfig) -> StateDict:
        """Convert the parameters of a stock class, already under our names, to our model's."""
        return tensors

    def to_stock_shape(self, tensors: StateDict, model: EncoderModel) -> StateDict:
        """Convert our shapes to stock shapes, for tensors under stock names."""
        return self._transpose(tensors)

    def from_stock_shape(self, tensors: StateDict) -> StateDict:
        """Convert stock shapes to our shapes, for tensors under stock names."""
        return self._transpose(tensors)

    def _transpose(self, tensors: StateDict) -> StateDict:
        return {
            name: t.T if t.ndim == 2 and name.endswith(self.transposed_tensors) else t
            for name, t in tensors.items()
        }

    def extra_inputs(self, visibility: Visibility, token_info: TokenInfo) -> Mapping[str, Tensor]:
        """Return additional inputs that the stock class needs for the attention mask."""
        return {}

    def usage_note(self, visibility: Visibility) -> str:
        """Describe the additional inputs that the stock class needs, for the model card."""
        return ""

    def max_equivalent_length(self, recipe: Recipe) -> int | None:
        """Return the length up to which the stock class is equivalent; None for any length."""
        return None

    def standalone_mismatch(self, recipe: Recipe, max_length: int | None) -> str | None:
        """Return why the bare stock class differs when given only texts; None if it does not.

        ``max_length`` is the maximum length of the texts.
        """
        if note := self.usage_note(recipe.encoder.visibility):
            return f"{self.class_name} needs more than a text: {note}"
        limit = self.max_equivalent_length(recipe)
        if limit is not None and (max_length is None or max_length > limit):
            return f"{self.class_name} differs for texts of more than {limit} tokens"
        return None

    def head_type(self, model: EncoderModel) -> str:
        """Return the head type for a model; heads that this type does not have are dropped."""
        if not isinstance(model, Model):
            return task_head_type(model)
        has_lm_head = model.output is not None
        for (predicts_tokens, head), head_type in self.pretraining_head_types.items():
            if predicts_tokens == has_lm_head and head is not None and head in model.heads:
                return head_type
        return self.pretraining_head_types[has_lm_head, None]

    def pretraining_objective(self, head_type: str) -> str | None:
        """Return the objective whose head a stock class has."""
        heads = ((head, kind) for (_, head), kind in self.pretraining_head_types.items())
        return next((head for head, kind in heads if kind == head_type), None)

    def dropped_heads(self, model: EncoderModel) -> list[str]:
        """Return the objectives whose heads no stock class has."""
        if not isinstance(model, Model):
            return []
        return [
            name
            for name in model.heads
            if name != self.pretraining_objective(self.head_type(model))
        ]

    def extra_mismatches(self, recipe: Recipe, special_tokens: SpecialTokens) -> list[str]:
        """Return additional reasons why this family cannot compute a recipe."""
        return []

    def name_table(self, head_type: str) -> TensorNameTable:
        """Return all tensor names of the stock class for a head type."""
        if head_type == BASE:
            return self.encoder_table
        encoder = add_prefix(self.base_model_prefix, self.encoder_table)
        if head_type in self.task_heads:
            return fill_prefix(self.base_model_prefix, self.task_heads[head_type].table) + encoder
        objective = self.pretraining_objective(head_type)
        if objective is not None:
            pooler = f"heads.{objective}.pooler"
            encoder = tuple((pooler if ours == POOLER else ours, t) for ours, t in encoder)
        return encoder + self.head_table

    def recipe_settings(self, config: StockConfig) -> dict[str, Any]:
        """Return the recipe's ``encoder``, ``output`` and ``assembly.length`` for a configuration.

        Raises UserError naming the key of config.json that no axis supports.
        """
        for name, value in self.required_config.items():
            if config.get(name, value) != value:
                raise UserError(f"{name} is {quote(config[name])}: supported is {value!r}")
        config = self.normalise_config(config)
        settings: dict[str, Any] = {}
        for path, choices in self.fixed_axes.items():
            _set_path(settings, path, choices[0])
        for key in (*self.config_keys, self.tie_key):
            _set_path(settings, key.recipe_path, key.to_recipe(config))
        max_length = config.get("max_position_embeddings", self.default_max_length)
        _set_path(settings, "assembly.length", max_length)
        _set_path(settings, "encoder.initialisation.kind", "published")
        _set_path(settings, "encoder.initialisation.std", config.get("initializer_range", 0.02))
        return self.adjust_recipe(settings)

    def stock_config(self, model: EncoderModel, special_tokens: SpecialTokens) -> StockConfig:
        """Return the configuration of the stock class for a model without mismatches."""
        recipe_data = expand_recipe(model.recipe)
        roles = self.token_roles(model.recipe)
        config: StockConfig = {
            "architectures": [self.class_name + self.head_type(model)],
            "model_type": self.model_type,
            "vocab_size": model.vocab_size,
            **{
                key.stock_key: key.to_stock(get_path(recipe_data, key.recipe_path))
                for key in self._used_keys(model)
            },
            **{key: getattr(special_tokens, role) for key, role in roles.items()},
        }
        return self.extend_config(config, model.recipe)

    def mismatches(self, model: EncoderModel, special_tokens: SpecialTokens) -> list[str]:
        """Return why no stock class of this family computes a model; empty if one does."""
        return [
            *self._objective_mismatches(model),
            *self._axis_mismatches(model),
            *self._key_mismatches(model),
            *self._head_mismatches(model),
            *self.extra_mismatches(model.recipe, special_tokens),
        ]

    def _used_keys(self, model: EncoderModel) -> list[ConfigKey]:
        """Return the keys that apply; output keys only if the model has an output layer."""
        keys = [*self.config_keys, self.tie_key]
        if uses_output_layer(model):
            return keys
        return [key for key in keys if not key.recipe_path.startswith("output.")]

    def _axis_mismatches(self, model: EncoderModel) -> Iterator[str]:
        recipe_data = expand_recipe(model.recipe)
        keys = [key.recipe_path for key in (*self.config_keys, self.tie_key)]
        supported = [*self.fixed_axes, *keys]
        unsupported = {
            path: choices
            for path, choices in self.unsupported_axes.items()
            if not any(f"{name}.".startswith(f"{path}.") for name in supported)
        }
        for path, choices in {**unsupported, **self.fixed_axes}.items():
            if path in keys:
                continue
            value = get_path(recipe_data, path)
            unused = path.startswith("output.") and not uses_output_layer(model)
            absent = value is None and path not in self.fixed_axes
            if value not in choices and not unused and not absent:
                expected = format_value(choices[0])
                yield f"{path} is {format_value(value)} ({self.class_name}: {expected})"

    def _key_mismatches(self, model: EncoderModel) -> Iterator[str]:
        recipe_data = expand_recipe(model.recipe)
        written: dict[str, Any] = {}
        for key in self._used_keys(model):
            value = get_path(recipe_data, key.recipe_path)
            theirs, expected = key.to_stock(value), None
            if key.recipe_path.endswith("dropout") and isinstance(value, Mapping):
                expected = "one rate"
            elif key.value_map is not None and theirs is None:
                expected = " or ".join(dict.fromkeys(map(format_value, key.value_map.values())))
            elif written.setdefault(key.stock_key, theirs) != theirs:
                expected = f"one {key.stock_key} for all"
            if expected is not None:
                yield f"{key.recipe_path} is {format_value(value)} ({self.class_name}: {expected})"

    def _head_mismatches(self, model: EncoderModel) -> Iterator[str]:
        head_type = self.head_type(model)
        if not isinstance(model, Model):
            if head_type in self.task_heads:
                yield from self.task_heads[head_type].mismatches(model, self.class_name)
            else:
                yield f"task heads are not supported ({self.class_name}: pre-training heads only)"
        elif model.pooler is not None and not find_stock_names(
            self.name_table(head_type), f"{POOLER}.weight"
        ):
            yield f"pooler is true ({self.class_name}: none)"

    def _objective_mismatches(self, model: EncoderModel) -> Iterator[str]:
        """Yield reasons why the stock class would interpret a recipe's outputs wrongly."""
        recipe = model.recipe
        if not isinstance(model, Model) or not recipe.objectives:
            return
        phase = len(recipe.phases) - 1
        final, steps = recipe.objectives_of(phase), recipe.objective_schedule(phase)
        # The stock class reads one text, which isolated texts do not restrict.
        stock = self.visibility & SameDocumentVisibility()
        if all(step.visibility & stock != stock for step in steps):
            first = next(iter(final))
            yield f"objectives.{first} ends the training ({self.class_name}: both sides seen)"
        for name, objective in final.items():
            for setting, expected in self.objective_settings().get(name, {}).items():
                value = getattr(objective, setting, expected)
                if value != expected:
                    yield (
                        f"objectives.{name}.{setting} is {format_value(value)} "
                        f"({self.class_name}: {format_value(expected)})"
                    )
            if shift := objective.prediction_shift:
                yield (
                    f"objectives.{name}.shift ends as {shift} ({self.class_name}: 0, predicted at "
                    f"the position itself)"
                )


def expand_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain data, with derived widths filled in."""
    data = recipe.as_dict()
    encoder = recipe.encoder
    data["encoder"]["embeddings"]["width"] = encoder.token_embedding_width
    width = encoder.last_block_width
    data["encoder"]["feed_forward"]["width"] = encoder.feed_forward.inner_width(width)
    if isinstance(encoder.mixer, AttentionConfig):
        shape = encoder.mixer.head_shape(width)
        inner = None if shape.inner_width == width else shape.inner_width
        widths = {"heads": shape.num_heads, "head_width": shape.head_width, "width": inner}
        data["encoder"]["mixer"] |= widths
    if recipe.decoder is not None:
        decoder = recipe.decoder.stack_config(encoder).model_dump(mode="json", by_alias=True)
        data["decoder"]["layers"] = decoder["depth"]["layers"]
        data["decoder"]["positions"] = decoder["positions"]
    return data


def get_path(data: Any, path: str) -> Any:
    """Return the value at a dotted path of plain data; None if there is none."""
    for part in path.split("."):
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _set_path(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for part in parents:
        data = data.setdefault(part, {})
    data[last] = value


def format_value(value: Any) -> str:
    """Return a value of a recipe in words."""
    if isinstance(value, Mapping):
        return "stated"
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)
