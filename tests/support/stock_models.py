"""Tiny stock models and tokenizers, built locally without network access."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers as library
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn

from bertwright.modules.token_tensors import TokenInfo

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

WORDPIECE_SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
BYTE_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
LENGTH = 16
FULL, PADDED = (12, 12, 12), (12, 7, 3)
both_lengths = pytest.mark.parametrize("lengths", [FULL, PADDED], ids=["full", "padded"])

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": LENGTH,
}
MODERN = {
    "global_attn_every_n_layers": 1,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
    "pad_token_id": 0,
}


def wordpiece() -> library.Tokenizer:
    """BERT's kind: letters, their continuations and a few words."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = [*WORDPIECE_SPECIALS, *letters, *(f"##{c}" for c in letters), *".,:?!", "the", "ship"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = library.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.add_special_tokens(WORDPIECE_SPECIALS)
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return backend


def byte_bpe() -> library.Tokenizer:
    """RoBERTa's kind: bytes and two merges."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*BYTE_SPECIALS[:4], *alphabet, "th", "the", "<mask>"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = library.Tokenizer(models.BPE(vocabulary, [("t", "h"), ("th", "e")]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.add_special_tokens(BYTE_SPECIALS)
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), add_prefix_space=False
    )
    return backend


TOKENIZERS = {
    "Bert": wordpiece,
    "Roberta": byte_bpe,
    "XLMRoberta": byte_bpe,
    "ModernBert": wordpiece,
    "Albert": wordpiece,
    "Electra": wordpiece,
    "DistilBert": wordpiece,
    "GPT2": wordpiece,
    "OpenAIGPT": wordpiece,
    "XLNet": wordpiece,
    "MobileBert": wordpiece,
    "XLM": wordpiece,
    "Longformer": byte_bpe,
    "BigBird": wordpiece,
    "T5": wordpiece,
    "Bart": wordpiece,
}
CONFIG_NAMES = {
    "DistilBert": {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
    },
    "GPT2": {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "intermediate_size": "n_inner",
        "max_position_embeddings": "n_positions",
    },
}
CONFIG_NAMES["XLNet"] = {
    "hidden_size": "d_model",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "d_inner",
}
THIN = {"hidden_size": 32, "intra_bottleneck_size": 16, "embedding_size": 24}
CONFIG_NAMES["XLM"] = {
    "hidden_size": "emb_dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_position_embeddings",
}
CONFIG_NAMES["T5"] = {
    "hidden_size": "d_model",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "d_ff",
}
HALVES = {"d_kv": 16}
BART = {
    **{f"{stack}_layers": 3 for stack in ("encoder", "decoder")},
    **{f"{stack}_attention_heads": 2 for stack in ("encoder", "decoder")},
    **{f"{stack}_ffn_dim": 48 for stack in ("encoder", "decoder")},
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": 3,
}
CONFIG_NAMES["Bart"] = {
    "hidden_size": "d_model",
    "max_position_embeddings": "max_position_embeddings",
}
CONFIG_NAMES["OpenAIGPT"] = {ours: n for ours, n in CONFIG_NAMES["GPT2"].items() if n != "n_inner"}


def family_name(architecture: str) -> str:
    """Return Bert for BertForMaskedLM."""
    name = architecture.split("For")[0].removesuffix("Model")
    return name.removesuffix("LMHead").removesuffix("With")


def stock_model(architecture: str, **changes: Any) -> transformers.PreTrainedModel:
    """A stock model with random parameters, biases and norms included."""
    family = family_name(architecture)
    size = TOKENIZERS[family]().get_vocab_size()
    names = CONFIG_NAMES.get(family, {name: name for name in SIZES})
    sizes = {names[name]: value for name, value in SIZES.items() if name in names}
    if family == "DistilBert":
        sizes["max_position_embeddings"] = LENGTH
    extra = {"ModernBert": MODERN, "MobileBert": THIN, "T5": HALVES, "Bart": BART}.get(family, {})
    settings = {**sizes, "vocab_size": size, **extra}
    config = getattr(transformers, f"{family}Config")(**settings | changes)
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(config).eval()
    if family == "MobileBert":
        randomise(model, SMALL)
        without_padding(model.get_input_embeddings())
    elif family == "T5":
        randomise(model, UNSCALED)
    else:
        randomise(model)
    return model


UNSCALED = 0.1
"""Size of random parameters where scores are unscaled: large ones would amplify rounding."""
SMALL = 0.05
"""Size of random parameters where no norm limits the growth of states."""


@torch.no_grad()
def randomise(model: nn.Module, size: float = 0.2) -> None:
    """Make all parameters random, zero biases and identity norms included."""
    generator = torch.Generator().manual_seed(1)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        gain = parameter.dim() == 1 and name.endswith("weight")
        parameter.copy_(1.0 + 1.5 * size * noise if gain else size * noise)


@torch.no_grad()
def without_padding(table: nn.Module) -> None:
    """Set the padding embedding to zero, a stock table's initial value: trigrams read it."""
    table.weight[0] = 0.0


def saved(model: transformers.PreTrainedModel, folder: Path, **config: Any) -> Path:
    """Save a model with a tokenizer; ``config`` changes config.json."""
    model.save_pretrained(folder)
    TOKENIZERS[family_name(type(model).__name__)]().save(str(folder / "tokenizer.json"))
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | config))
    return folder


def random_batch(vocab_size: int, lengths: tuple[int, ...], padding: int) -> tuple[Tensor, Tensor]:
    """Random token ids (B, L) and their attention mask, bool."""
    generator = torch.Generator().manual_seed(2)
    token_ids = torch.randint(5, vocab_size - 1, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return token_ids.masked_fill(~mask, padding), mask


def token_info(
    mask: Tensor, segment_ids: Tensor | None = None, language_ids: Tensor | None = None
) -> TokenInfo:
    """Our token info of an attention mask."""
    return TokenInfo(
        torch.arange(mask.shape[1])[None],
        segment_ids=segment_ids,
        document_ids=None if mask.all() else mask.long() - 1,
        language_ids=language_ids,
    )
