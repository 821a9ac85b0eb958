"""Compare an exported folder, loaded with Transformers, with the model."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.batches.formats import InputFormat
from bertwright.core.errors import MissingExtra, UserError
from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface import CONFIG_FILE
from bertwright.interop.huggingface.families.family import ModelFamily
from bertwright.interop.huggingface.head_types import (
    BASE,
    CAUSAL_LM,
    CONDITIONAL_GENERATION,
    MULTIPLE_CHOICE,
    POOLER,
    EncoderModel,
)
from bertwright.interop.huggingface.tensor_names import find_stock_names
from bertwright.interop.parity import Parity
from bertwright.models import Model
from bertwright.models.text_batches import TextBatch, text_batches
from bertwright.modules.attention.mask import Visibility
from bertwright.modules.token_tensors import CrossAttentionSource
from bertwright.objectives.classification import PooledClassifier
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.task_model import TaskModel

STOCK_LOGITS_NAMES = ("prediction_logits", "logits")
"""Output names of LM logits and task logits in stock classes."""

LOADING_REPORTS = {
    "missing_keys": "lacks the tensor",
    "unexpected_keys": "does not read the tensor",
    "mismatched_keys": "has another shape for the tensor",
    "error_msgs": "fails to load:",
}
"""Problems that Transformers reports when loading, in words."""

AUTO_CLASS_SUFFIXES = {CONDITIONAL_GENERATION: "ForSeq2SeqLM"}
"""Auto class suffixes by stock class suffix, if the two differ."""

SAMPLE_TEXTS = (
    ("A short one.",),
    ("The weather was fine, and so everybody went down to the harbour to see the ships.",),
    ("Is it raining?", "No: it stopped an hour ago."),
)
"""Texts of three lengths, so that two are padded; the last is a pair."""


@torch.inference_mode()
def max_stock_difference(
    folder: Path,
    family: ModelFamily,
    model: EncoderModel,
    tokenizer: Tokenizer,
    bos_token_id: int | None,
) -> float:
    """Return the maximum absolute difference of hidden states and logits at all real positions.

    Texts are padded in a batch, or run one by one if padding changes the stock class's outputs.
    With ``bos_token_id``, texts have no end token. Raises MissingExtra without Transformers, and
    UserError if tokens differ, or if outputs differ by more than rounding.
    """
    stock, stock_tokenizer = _load_stock_model(folder, _base_class_tensors(family, model))
    sequences, segments = _encode_sample_texts(
        tokenizer, stock_tokenizer, bos_token_id, model.recipe.assembly
    )
    max_length = stock_tokenizer.model_max_length
    max_length = min(max_length, family.max_equivalent_length(model.recipe) or max_length)
    sequences = [token_ids[:max_length] for token_ids in sequences]
    segments = [segment_ids[:max_length] for segment_ids in segments]
    takes_segments = "token_type_ids" in stock_tokenizer.model_input_names
    batch_segments = segments if model.recipe.encoder.distinguishes_segments else None
    device = next(model.parameters()).device
    batch_tokens = 1 if family.is_padding_sensitive else 1 << 20
    objective = family.pretraining_objective(family.head_type(model))
    objective_names = [family.stock_output_names[objective]] if objective else []
    names = list(dict.fromkeys([*STOCK_LOGITS_NAMES, *objective_names]))
    stock, model = stock.to(device), model.eval()
    parity = Parity()
    pad = tokenizer.special_tokens.pad
    for batch in text_batches(sequences, pad, device, batch_segments, batch_tokens):
        extra_inputs = dict(family.extra_inputs(model.encoder.visibility, batch.token_info))
        if takes_segments and batch.token_info.segment_ids is not None:
            extra_inputs["token_type_ids"] = batch.token_info.segment_ids
        theirs = _compute_stock_outputs(stock, batch, names, extra_inputs)
        ours = _compute_outputs(model, batch, objective, family.visibility)
        for our_output, their_output in zip(ours, theirs, strict=True):
            parity.update(our_output.float().cpu().numpy(), their_output.float().cpu().numpy())
    parity.require_rounding("the stock class")
    return parity.max_difference


def _encode_sample_texts(
    tokenizer: Tokenizer,
    stock_tokenizer: Any,
    bos_token_id: int | None,
    input_format: InputFormat,
) -> tuple[list[list[int]], list[list[int]]]:
    """Return token and segment ids of the samples; UserError if the stock tokenizer differs."""
    specials = tokenizer.special_tokens
    encoder = ExampleEncoder(tokenizer, input_format, 0, 1, 0, True)
    sequences: list[list[int]] = []
    segments: list[list[int]] = []
    for texts in SAMPLE_TEXTS:
        encoded_texts = [tokenizer.encode(text) for text in texts]
        for text, token_ids in zip(texts, encoded_texts, strict=True):
            expected = input_format.add_special_tokens(token_ids, specials)
            if bos_token_id is not None:
                expected = [bos_token_id, *token_ids]
            actual = stock_tokenizer(text)["input_ids"]
            if tokenizer.roles:  # with the post-processor of the published tokenizer
                expected = [i for i in expected if i not in specials.all]
                actual = [i for i in actual if i not in specials.all]
            if actual != expected:
                raise UserError(
                    f"the stock tokenizer splits {text!r} into other tokens than ours: this is a "
                    f"bug in bertwright, please report the tokenizer"
                )
        token_ids, segment_ids = encoder.join_texts(encoded_texts)
        sequences.append(token_ids)
        segments.append(segment_ids)
    return sequences, segments


def _compute_outputs(
    model: EncoderModel, batch: TextBatch, objective: str | None, visibility: Visibility
) -> list[Tensor]:
    """Return hidden states at real positions (M, D), then logits and objective outputs."""
    states = model.encoder(batch.token_ids, batch.token_info, model.encoder.visibility & visibility)
    mask = _attention_mask(batch)
    outputs = [states[mask]]
    if isinstance(model, Model) and model.decoder is not None:
        # Any decoder input will do; the encoder's input is used.
        decoded = model.decoder.decode(
            batch.token_ids, CrossAttentionSource(states, batch.token_info)
        )
        decoded = decoded if model.output is None else model.full_logits(decoded)
        return [*outputs, decoded[mask]]
    if isinstance(model, TaskModel):
        positions = mask.flatten().nonzero().flatten()
        return [*outputs, model(batch.token_ids, batch.token_info, positions)]
    if model.output is not None:
        outputs.append(model.full_logits(states[mask]))
    if objective is not None:
        module = model.heads[objective]
        outputs.append(
            module(states[:, 0] if isinstance(module, PooledClassifier) else states[mask])
        )
    return outputs


def _compute_stock_outputs(
    stock_model: Any, batch: TextBatch, output_names: list[str], extra_inputs: Mapping[str, Tensor]
) -> list[Tensor]:
    mask = _attention_mask(batch)
    inputs = {"input_ids": batch.token_ids, "attention_mask": mask.long(), **extra_inputs}
    if getattr(stock_model.config, "use_lang_emb", False):
        # Without langs the stock class adds no language embedding; our model adds the first one.
        inputs["langs"] = torch.zeros_like(batch.token_ids)
    if stock_model.config.is_encoder_decoder:
        output = stock_model(**inputs, decoder_input_ids=batch.token_ids)
        logits = output[0] if "logits" not in output else output.logits
        return [output.encoder_last_hidden_state[mask], logits[mask]]
    if type(stock_model).__name__.endswith(MULTIPLE_CHOICE):
        output = stock_model(**{name: tensor[:, None] for name, tensor in inputs.items()})
    else:
        output = stock_model(**inputs)
    if "start_logits" in output:
        output["logits"] = torch.stack((output.start_logits, output.end_logits), -1)
    logits = [output[name] for name in output_names if name in output]
    hidden_states = stock_model.base_model(**inputs).last_hidden_state
    return [
        output[mask] if output.shape[:2] == mask.shape else output
        for output in (hidden_states, *logits)
    ]


def _attention_mask(batch: TextBatch) -> Tensor:
    document_ids = batch.token_info.document_ids
    if document_ids is None:
        return torch.ones_like(batch.token_ids, dtype=torch.bool)
    return document_ids >= 0


def _base_class_tensors(family: ModelFamily, model: EncoderModel) -> frozenset[str]:
    """Return the names of the tensors that only the base class reads: a pooler beside a head."""
    head_type = family.head_type(model)
    if head_type == BASE or not isinstance(model, Model) or model.pooler is None:
        return frozenset()
    table = family.name_table(head_type)
    names = [f"{POOLER}.{name}" for name, _ in model.pooler.named_parameters()]
    return frozenset(stock for name in names for stock in find_stock_names(table, name))


def _load_stock_model(folder: Path, base_class_tensors: frozenset[str]) -> tuple[Any, Any]:
    """Load the stock model and tokenizer of a folder with the Auto classes.

    Raises UserError if tensors are missing, or unused and not in ``base_class_tensors``.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("transformers", "huggingface") from error
    architecture: str = json.loads((folder / CONFIG_FILE).read_text())["architectures"][0]
    suffix = architecture[architecture.index("For") :] if "For" in architecture else ""
    suffix = AUTO_CLASS_SUFFIXES.get(suffix, suffix)
    if architecture.endswith(CAUSAL_LM):
        suffix = "ForCausalLM"
    auto_class = getattr(transformers, f"AutoModel{suffix}")
    with _silence_transformers(transformers):
        model, info = auto_class.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if type(model).__name__ != architecture:
        raise UserError(f"Transformers loads {type(model).__name__} instead of {architecture}")
    for report, reason in LOADING_REPORTS.items():
        if names := {*map(str, info.get(report, ()))} - base_class_tensors:
            raise UserError(
                f"{architecture} {reason} {min(names)}: this is a bug in "
                f"bertwright, please report the recipe"
            )
    return model.eval(), tokenizer


@contextmanager
def _silence_transformers(transformers: Any) -> Generator[None]:
    """Suppress progress bars and warnings while a folder is loaded."""
    logging = transformers.utils.logging
    level = logging.get_verbosity()
    bar: bool = logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
