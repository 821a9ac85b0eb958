"""Whether Transformers computes from a written folder what we compute from the model."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertwright.encoder.stream import Source
from bertwright.encoder.visibility import Visibility
from bertwright.errors import MissingExtra, UserError
from bertwright.interop.huggingface.family import Family
from bertwright.interop.huggingface.purposes import CAUSAL, DECODED, OPTIONS, Net
from bertwright.model import Model
from bertwright.model.reading import ReadBatch, read_batches
from bertwright.objectives.class_question import PairHead
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Tokenizer

TOLERANCE = 1e-4
"""What float32 explains, as a share of the greatest output (of 1 at least)."""

LOGITS = ("prediction_logits", "logits")
"""What stock classes call what they say of pieces, or of a task."""

LOADED = {
    "missing_keys": "lacks the tensor",
    "unexpected_keys": "does not read the tensor",
    "mismatched_keys": "has another shape for the tensor",
    "error_msgs": "fails to load:",
}
"""What Transformers reports of loading, and what it means."""

AUTO = {DECODED: "ForSeq2SeqLM"}
"""How the Auto classes end where the stock classes end otherwise."""

TEXTS = (
    ("A short one.",),
    ("The weather was fine, and so everybody went down to the harbour to see the ships.",),
    ("Is it raining?", "No: it stopped an hour ago."),
)
"""Of three lengths, so that two of them are padded; the last is a pair."""


@torch.inference_mode()
def greatest_difference(
    folder: Path, family: Family, net: Net, tokenizer: Tokenizer, opening: int | None
) -> float:
    """The greatest absolute difference between the outputs (states, logits) of the stock class and
    ours, at every real place of a padded batch of texts; row by row where the stock class reads its
    padding. ``opening`` is the piece behind which texts are not ended.

    Errors: MissingExtra without Transformers; UserError where pieces or outputs differ by more
    than rounding.
    """
    stock, stock_tokenizer = _load(folder)
    rows, segments = _rows(tokenizer, stock_tokenizer, opening)
    alike = family.longest_alike(net.recipe)
    longest = min(stock_tokenizer.model_max_length, alike or stock_tokenizer.model_max_length)
    rows, segments = [r[:longest] for r in rows], [s[:longest] for s in segments]
    typed = "token_type_ids" in stock_tokenizer.model_input_names
    apart = segments if net.recipe.encoder.tells_segments else None
    device = next(net.parameters()).device
    budget = 1 if family.reads_padding else 1 << 20
    head = family.head(family.purpose(net))
    named = [*LOGITS, *([family.outputs[head]] if head else [])]
    names = list(dict.fromkeys(named))
    stock, net = stock.to(device), net.eval()
    difference, scale = 0.0, 1.0
    pad = tokenizer.specials.pad
    for batch in read_batches(rows, pad, device, apart, budget):
        told = dict(family.inputs(net.encoder.rule, batch.coordinates))
        if typed and batch.coordinates.segment is not None:
            told["token_type_ids"] = batch.coordinates.segment
        theirs = _stock_outputs(stock, batch, names, told)
        ours = _our_outputs(net, batch, head, family.visibility)
        off = (float((a - b).abs().max()) for a, b in zip(theirs, ours, strict=True))
        difference = max(difference, *off)
        scale = max(scale, *(float(output.abs().max()) for output in ours))
    if not difference <= TOLERANCE * scale:
        raise UserError(
            f"the stock class differs from the model by {difference:.2g}: this is a mistake of "
            f"bertwright's, please report the recipe"
        )
    return difference


def _rows(
    tokenizer: Tokenizer, stock: Any, opening: int | None
) -> tuple[list[list[int]], list[list[int]]]:
    """The texts as rows and their segments; UserError where the stock tokenizer reads otherwise."""
    specials = tokenizer.specials
    start, end = specials.start, specials.end
    rows: list[list[int]] = []
    segments: list[list[int]] = []
    for texts in TEXTS:
        row, segment = [start], [0]
        for number, text in enumerate(texts):
            pieces = [*tokenizer.encode(text), end]
            framed = [start, *pieces] if opening is None else [opening, *pieces[:-1]]
            read = stock(text)["input_ids"]
            if tokenizer.roles:  # framed as it came
                framed, read = ([i for i in ids if i not in specials.all] for ids in (framed, read))
            if read != framed:
                raise UserError(
                    f"the stock tokenizer reads {text!r} as other pieces than ours: this is a "
                    f"mistake of bertwright's, please report the tokenizer"
                )
            row += pieces
            segment += [number] * len(pieces)
        rows.append(row)
        segments.append(segment)
    return rows, segments


def _our_outputs(
    net: Net, batch: ReadBatch, head: str | None, visibility: Visibility
) -> list[Tensor]:
    """States at the real places (M, D), then what the output and the head of an objective say."""
    states = net.encoder(batch.pieces, batch.coordinates, net.encoder.rule & visibility)
    real = _real(batch)
    outputs = [states[real]]
    if isinstance(net, Model) and net.decoder is not None:
        # What the decoder is given is any row: here the one that the encoder reads.
        decoded = net.decoder.states(batch.pieces, Source(states, batch.coordinates))
        decoded = decoded if net.output is None else net.row_logits(decoded)
        return [*outputs, decoded[real]]
    if isinstance(net, TaskModel):
        where = real.flatten().nonzero().flatten()
        return [*outputs, net(batch.pieces, batch.coordinates, where)]
    if net.output is not None:
        outputs.append(net.row_logits(states[real]))
    if head is not None:
        module = net.heads[head]
        outputs.append(module(states[:, 0] if isinstance(module, PairHead) else states[real]))
    return outputs


def _stock_outputs(
    stock: Any, batch: ReadBatch, names: list[str], told: Mapping[str, Tensor]
) -> list[Tensor]:
    real = _real(batch)
    inputs = {"input_ids": batch.pieces, "attention_mask": real.long(), **told}
    if getattr(stock.config, "use_lang_emb", False):
        # Without these the stock class adds no language at all; ours takes the first it knows.
        inputs["langs"] = torch.zeros_like(batch.pieces)
    if stock.config.is_encoder_decoder:
        said = stock(**inputs, decoder_input_ids=batch.pieces)
        answers = said[0] if "logits" not in said else said.logits
        return [said.encoder_last_hidden_state[real], answers[real]]
    if type(stock).__name__.endswith(OPTIONS):
        said = stock(**{name: each[:, None] for name, each in inputs.items()})
    else:
        said = stock(**inputs)
    if "start_logits" in said:
        said["logits"] = torch.stack((said.start_logits, said.end_logits), -1)
    given = [said[name] for name in names if name in said]
    states = stock.base_model(**inputs).last_hidden_state
    return [o[real] if o.shape[:2] == real.shape else o for o in (states, *given)]


def _real(batch: ReadBatch) -> Tensor:
    document = batch.coordinates.document
    return torch.ones_like(batch.pieces, dtype=torch.bool) if document is None else document >= 0


def _load(folder: Path) -> tuple[Any, Any]:
    """The stock model and tokenizer of a folder, by the Auto classes.

    Errors: UserError where the model does not read every tensor, or lacks one.
    """
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra("transformers", "huggingface") from error
    architecture: str = json.loads((folder / "config.json").read_text())["architectures"][0]
    purpose = architecture[architecture.index("For") :] if "For" in architecture else ""
    purpose = AUTO.get(purpose, purpose)
    if architecture.endswith(CAUSAL):
        purpose = "ForCausalLM"
    auto = getattr(transformers, f"AutoModel{purpose}")
    with _quiet(transformers):
        model, info = auto.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if type(model).__name__ != architecture:
        raise UserError(f"Transformers loads {type(model).__name__} in the place of {architecture}")
    for report, reason in LOADED.items():
        if names := info.get(report):
            raise UserError(
                f"{architecture} {reason} {min(map(str, names))}: this is a mistake of "
                f"bertwright's, please report the recipe"
            )
    return model.eval(), tokenizer


@contextmanager
def _quiet(transformers: Any) -> Generator[None]:
    """No progress bar and no advice on stderr while a folder is loaded."""
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
