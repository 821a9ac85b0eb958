"""Export a model to a folder for stock Transformers classes."""

import copy
import json
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors.torch import save_file

from bertwright.core.errors import UserError
from bertwright.core.files import atomic_folder
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.families.config_keys import StockConfig
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.families.registry import find_family
from bertwright.interop.huggingface.head_types import (
    CAUSAL_LM,
    CLASSIFIER_POOLINGS,
    PROBLEM_TYPES,
    EncoderModel,
)
from bertwright.interop.huggingface.model_card import make_model_card
from bertwright.interop.huggingface.tensor_names import StateDict, to_stock_names
from bertwright.interop.huggingface.tokenizer.writer import write_tokenizer
from bertwright.interop.huggingface.verification import max_stock_difference
from bertwright.interop.huggingface.weights import WEIGHTS_FILE
from bertwright.models import Model
from bertwright.modules.vector_projection import VECTOR_PROJECTION
from bertwright.tasks.example_encoder import num_pair_separators
from bertwright.tasks.fake_quantizer_removal import remove_fake_quantizers
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import GeneratedOutput, MatchingOutput, MultiLabelOutput, SpanOutput
from bertwright.tasks.outputs.text.generated import TEXT_FIELD
from bertwright.tasks.task_model import TaskModel

Network = TypeVar("Network", Model, TaskModel)

CARD_FILE = "README.md"

GENERATION_CONFIG_FILE = "generation_config.json"

MAX_POSITIONS_KEY = "max_position_embeddings"
"""Config key of the maximum sequence length."""


@dataclass(frozen=True)
class HuggingFaceExport:
    """The result of an export.

    ``max_difference`` is the largest difference from the stock class's outputs; None if not
    verified. ``dropped_objectives`` have heads that no stock class has. ``threshold_note``
    describes a threshold that stock classes do not apply.
    """

    architecture: str
    max_difference: float | None
    dropped_objectives: tuple[str, ...] = ()
    threshold_note: str = ""


def export_huggingface(
    model: Model | FineTunedModel,
    tokenizer: Tokenizer,
    folder: Path,
    verify: bool = False,
    model_type: str | None = None,
) -> HuggingFaceExport:
    """Write config.json, model.safetensors, tokenizer files and a model card.

    The temperature of a fine-tuned model is folded into its classifier, so probabilities agree with
    ``predict``. ``verify`` loads the folder with Transformers and compares the outputs; a folder
    whose outputs differ is not kept. ``model_type`` selects one of several equivalent families.

    Raises UserError naming the axis that no stock class supports, and MissingExtra if ``verify``
    needs Transformers.
    """
    if isinstance(model, FineTunedModel):
        model = remove_fake_quantizers(model)
        has_decoder = model.task_model.decoder is not None
        net = model.model if has_decoder else _apply_temperature(model)
    else:
        net = model
    family = find_family(net, tokenizer.special_tokens, model_type)
    if family.is_padding_sensitive and isinstance(net, TaskModel):
        net = with_zero_padding_vector(net, tokenizer)
    config = family.stock_config(net, tokenizer.special_tokens)
    if isinstance(model, FineTunedModel) and not isinstance(net, Model):
        config |= task_config(model, family)
    max_length = _max_length(model)
    if net.encoder.max_length is None and MAX_POSITIONS_KEY in config:
        config[MAX_POSITIONS_KEY] = max(config[MAX_POSITIONS_KEY], max_length)
    architecture: str = config["architectures"][0]
    with atomic_folder(folder) as temporary:
        (temporary / CONFIG_FILE).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        if isinstance(model, FineTunedModel) and isinstance(net, Model):
            write_generation_config(temporary, model, config)
        tensors = stock_state_dict(family, net)
        save_file(tensors, str(temporary / WEIGHTS_FILE), metadata={"format": "pt"})
        encoder, head_type = net.recipe.encoder, family.head_type(net)
        separators = num_pair_separators(net.recipe, tokenizer)
        is_causal = any(
            o.capabilities.prediction == "causal" for o in net.recipe.objectives.values()
        )
        bos_id = None
        if is_causal and head_type == CAUSAL_LM:
            bos_id = net.recipe.assembly.start_token(tokenizer.special_tokens)
        write_tokenizer(
            temporary,
            tokenizer,
            net.recipe.assembly,
            encoder.has_segments,
            max_length,
            separators,
            bos_id,
        )
        usage = family.usage_note(encoder.visibility)
        threshold = ""
        if isinstance(model, FineTunedModel):
            usage, threshold = usage or _source_note(model), _threshold_note(model)
        card = make_model_card(
            net, tokenizer, architecture, head_type, max_length, usage, threshold
        )
        (temporary / CARD_FILE).write_text(card, encoding="utf-8")
        difference = None
        if verify:
            difference = max_stock_difference(temporary, family, net, tokenizer, bos_id)
    return HuggingFaceExport(architecture, difference, tuple(family.dropped_heads(net)), threshold)


def task_config(model: FineTunedModel, family: ModelFamily) -> dict[str, Any]:
    """Return the config keys of a task: labels, problem type and pooling."""
    task, head_config = model.task, model.task_model.head_config
    num_outputs = model.task_model.head_spec.num_outputs
    labels = task.labels or tuple(f"LABEL_{index}" for index in range(num_outputs))
    config: dict[str, Any] = {
        "id2label": {str(index): label for index, label in enumerate(labels)},
        "label2id": {label: index for index, label in enumerate(labels)},
    }
    if task.output_type.kind_name() in PROBLEM_TYPES:
        config["problem_type"] = PROBLEM_TYPES[task.output_type.kind_name()]
    elif (kind := task.output_type.kind_name()) not in ("tags", "span", "option", "relevance"):
        is_matching = isinstance(task.output_type, MatchingOutput)
        other = " or export it to sentence-transformers" if is_matching else ""
        raise UserError(
            f"no stock class has an output of type {kind}: use the bertwright folder{other}"
        )
    if len(family.task_heads[family.head_type(model.task_model)].read_choices) > 1:
        stock_poolings = {ours: theirs for theirs, ours in CLASSIFIER_POOLINGS.items()}
        config["classifier_pooling"] = stock_poolings[head_config.pooling]
    return config


@torch.no_grad()
def _apply_temperature(model: FineTunedModel) -> TaskModel:
    """Return the task model with its classifier divided by the temperature."""
    if model.temperature == 1.0:
        return model.task_model
    task_model = copy.deepcopy(model.task_model)
    for parameter in task_model.head.classifier.parameters():
        parameter /= model.temperature
    return task_model


@torch.no_grad()
def with_zero_padding_vector(network: Network, tokenizer: Tokenizer) -> Network:
    """Return a copy with a zero padding embedding, for stock classes that read padding."""
    copied = copy.deepcopy(network)
    copied.encoder.embeddings.table[tokenizer.special_tokens.pad] = 0
    return copied


def write_generation_config(folder: Path, model: FineTunedModel, config: StockConfig) -> None:
    """Write generation_config.json, with which ``generate`` gives the same texts as ``predict``."""
    output_type, specials = model.task.output_type, model.tokenizer.special_tokens
    assert isinstance(output_type, GeneratedOutput), "a decoder generates texts"
    settings = output_type.generation
    is_sampled = settings.num_beams == 1 and settings.temperature > 0
    generation: dict[str, Any] = {
        "decoder_start_token_id": config["decoder_start_token_id"],
        "eos_token_id": specials.end,
        "pad_token_id": specials.pad,
        "suppress_tokens": sorted(specials.all - {specials.end}),
        "max_new_tokens": settings.max_new_tokens,
        "num_beams": settings.num_beams,
        "do_sample": is_sampled,
        "repetition_penalty": settings.repetition_penalty,
    }
    if settings.num_beams > 1:
        generation["length_penalty"] = settings.length_penalty
    if is_sampled:
        top_k = settings.top_k or 0
        generation |= {
            "temperature": settings.temperature,
            "top_k": top_k,
            "top_p": settings.top_p,
        }
    text = json.dumps(generation, indent=2, sort_keys=True) + "\n"
    (folder / GENERATION_CONFIG_FILE).write_text(text)


def _source_note(model: FineTunedModel) -> str:
    """Describe the source that the encoder reads, if it is more than the text."""
    output_type = model.task.output_type
    if not isinstance(output_type, GeneratedOutput) or output_type.template == TEXT_FIELD:
        return ""
    return f"the words of the template {output_type.template!r}"


def _threshold_note(model: FineTunedModel) -> str:
    """Describe the model's threshold, if any, which stock classes do not have."""
    output_type = model.task.output_type
    if isinstance(output_type, MultiLabelOutput) and output_type.threshold != 0.5:
        logit = log(output_type.threshold / (1 - output_type.threshold)) / model.temperature
        return f"predict labels with a probability above {1 / (1 + exp(-logit)):.4g}, not 0.5"
    if isinstance(output_type, SpanOutput) and output_type.unanswerable and output_type.threshold:
        margin = f"{output_type.threshold:.4g}"
        return f"predict no answer where its score exceeds the best answer's by {margin}, not 0"
    return ""


@torch.no_grad()
def stock_state_dict(family: ModelFamily, model: EncoderModel) -> StateDict:
    """Return the tensors that a stock class saves: float32, with tied tensors only once."""
    dropped_heads = [f"heads.{name}." for name in family.dropped_heads(model)]
    dropped_prefixes = (*dropped_heads, VECTOR_PROJECTION)
    ours = family.zero_pooler(model) | family.export_tensors(model)
    kept = {name: t for name, t in ours.items() if not name.startswith(dropped_prefixes)}
    stock = to_stock_names(family.name_table(family.head_type(model)), kept)
    tensors = family.to_stock_shape(stock, model)
    if family.output_bias_name in tensors and f"{family.output_layer_name}.weight" in tensors:
        tensors[f"{family.output_layer_name}.bias"] = tensors[family.output_bias_name].clone()
    return {name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}


def _max_length(model: Model | FineTunedModel) -> int:
    if isinstance(model, FineTunedModel):
        return model.example_encoder.max_length
    recipe = model.recipe
    training_length = max(
        recipe.input_format_of(phase).length for phase in range(len(recipe.phases))
    )
    return model.encoder.max_length or training_length
