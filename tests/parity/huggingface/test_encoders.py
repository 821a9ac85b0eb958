"""Stock classes and ours compute the same, imported or exported."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models import Model
from bertwright.modules.attention.cache import Memory
from bertwright.modules.attention.mask import (
    GlobalVisibility,
    PermutationVisibility,
    RandomBlocksVisibility,
    WindowVisibility,
)
from bertwright.modules.token_tensors import TokenInfo
from stock_models import (
    LENGTH,
    PADDED,
    SMALL,
    TOKENIZERS,
    both_lengths,
    random_batch,
    randomise,
    saved,
    stock_model,
    token_info,
    without_padding,
)
from toy_recipes import toy

PAIR_LOGITS = {"next-sentence": "seq_relationship_logits", "sentence-order": "sop_logits"}


def require_equal_outputs(
    stock: transformers.PreTrainedModel, ours: Model, lengths: tuple[int, ...]
) -> None:
    """Hidden states, logits and pair logits agree at all real positions."""
    languages = ours.recipe.encoder.embeddings.languages
    has_segments = ours.recipe.encoder.embeddings.segments > 1
    ours = ours.cpu()
    token_ids, mask = random_batch(ours.vocab_size, lengths, stock.config.pad_token_id)
    segment_ids = (
        (torch.arange(token_ids.shape[1]) > 4).long().expand_as(token_ids) if has_segments else None
    )
    inputs: dict[str, Tensor] = {"input_ids": token_ids, "attention_mask": mask.long()}
    if segment_ids is not None:
        inputs["token_type_ids"] = segment_ids
    language_ids = None
    if languages:
        language_ids = (torch.arange(token_ids.shape[1]) % len(languages)).expand_as(token_ids)
        inputs["langs"] = language_ids
    family = FAMILIES[stock.config.model_type]
    inputs |= family.extra_inputs(ours.encoder.visibility, token_info(mask, segment_ids))
    with torch.inference_mode():
        theirs = stock(**inputs)
        expected = stock.base_model(**inputs).last_hidden_state
        hidden_states = ours(token_ids, token_info(mask, segment_ids, language_ids))
        require_close(hidden_states[mask], expected[mask])
        logits = theirs.get("prediction_logits", theirs.get("logits"))
        if ours.output is not None:
            require_close(ours.logits(hidden_states)[mask], logits[mask])
        for name in PAIR_LOGITS.keys() & ours.heads.keys():
            require_close(
                ours.heads[name](hidden_states[:, 0]), theirs.get(PAIR_LOGITS[name], logits)
            )
        if "replaced-token" in ours.heads:
            require_close(ours.heads["replaced-token"](hidden_states[mask]), logits[mask])
        if ours.pooler is not None and "pooler_output" in theirs:
            require_close(torch.tanh(ours.pooler(hidden_states[:, 0])), theirs["pooler_output"])


def require_close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


TOKENS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}

LONG = {"attention_window": 4, "type_vocab_size": 1}

STOCK: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForPreTraining", {}),
    "bert-masked": ("BertForMaskedLM", {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3}),
    "bert-pairs": ("BertForNextSentencePrediction", {}),
    "bert-alone": ("BertModel", {"hidden_act": "relu"}),
    "bert-untied": ("BertForPreTraining", {"tie_word_embeddings": False}),
    "roberta": ("RobertaForMaskedLM", {"type_vocab_size": 1}),
    "roberta-relu": ("RobertaForMaskedLM", {"hidden_act": "relu"}),
    "roberta-untied": ("RobertaForMaskedLM", {"tie_word_embeddings": False}),
    "xlm-roberta": ("XLMRobertaForMaskedLM", {"type_vocab_size": 1}),
    "albert": ("AlbertForPreTraining", {"embedding_size": 24}),
    "albert-groups": ("AlbertForMaskedLM", {"embedding_size": 24, "num_hidden_groups": 2}),
    "albert-unshared": ("AlbertModel", {"embedding_size": 24, "num_hidden_groups": 3}),
    "electra-discriminator": ("ElectraForPreTraining", {"embedding_size": 24}),
    "electra-wide": ("ElectraForPreTraining", {"embedding_size": 32}),
    "electra-generator": ("ElectraForMaskedLM", {"embedding_size": 24}),
    "distilbert": ("DistilBertForMaskedLM", {}),
    "gpt-2": ("GPT2LMHeadModel", TOKENS),
    "gpt-2-alone": ("GPT2Model", TOKENS),
    "gpt": ("OpenAIGPTLMHeadModel", TOKENS),
    "xlnet": ("XLNetLMHeadModel", TOKENS),
    "xlnet-alone": ("XLNetModel", {**TOKENS, "ff_activation": "relu"}),
    "mobilebert": ("MobileBertForPreTraining", {}),
    "mobilebert-masked": ("MobileBertForMaskedLM", {"hidden_act": "gelu", "layer_norm_eps": 1e-3}),
    "mobilebert-pairs": ("MobileBertForNextSentencePrediction", {}),
    "mobilebert-alone": ("MobileBertModel", {}),
    "mobilebert-released": ("MobileBertForPreTraining", {"classifier_activation": False}),
    "mobilebert-released-pairs": (
        "MobileBertForNextSentencePrediction",
        {"classifier_activation": False},
    ),
    "xlm": ("XLMWithLMHeadModel", {**TOKENS, "n_langs": 3, "lang2id": {"b": 1, "a": 0, "c": 2}}),
    "xlm-alone": ("XLMModel", {**TOKENS, "gelu_activation": False}),
    "xlm-without-languages": (
        "XLMWithLMHeadModel",
        {**TOKENS, "n_langs": 3, "use_lang_emb": False},
    ),
    "longformer": ("LongformerForMaskedLM", LONG),
    "longformer-alone": ("LongformerModel", {**LONG, "attention_window": 6}),
    "longformer-growing": ("LongformerForMaskedLM", {**LONG, "attention_window": [4, 8, 4]}),
    "bigbird": ("BigBirdForMaskedLM", {"block_size": 2, "num_random_blocks": 1}),
    "bigbird-pairs": ("BigBirdForPreTraining", {"rescale_embeddings": True}),
    "bigbird-full": ("BigBirdModel", {"attention_type": "original_full", "hidden_act": "relu"}),
    "modern": ("ModernBertForMaskedLM", {}),
    "modern-alone": ("ModernBertModel", {"norm_eps": 1e-2}),
    "modern-untied": ("ModernBertForMaskedLM", {"tie_word_embeddings": False}),
    "modern-local": (
        "ModernBertForMaskedLM",
        {"global_attn_every_n_layers": 3, "local_attention": 4, "num_hidden_layers": 5},
    ),
    "modern-biased": (
        "ModernBertForMaskedLM",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "classifier_bias": True,
            "decoder_bias": False,
            "hidden_activation": "silu",
            "classifier_activation": "relu",
            "rope_parameters": {
                kind: {"rope_type": "default", "rope_theta": 500.0}
                for kind in ("full_attention", "sliding_attention")
            },
        },
    ),
}


@both_lengths
@pytest.mark.parametrize("case", STOCK)
def test_an_imported_model_computes_the_same(
    case: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    architecture, changes = STOCK[case]
    stock = stock_model(architecture, **changes)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    require_equal_outputs(stock, ours, lengths)


@pytest.mark.parametrize("case", STOCK)
def test_an_imported_model_is_exported_unchanged(case: str, tmp_path: Path) -> None:
    architecture, changes = STOCK[case]
    stock = stock_model(architecture, **changes)
    ours, tokenizer = import_huggingface(saved(stock, tmp_path / "stock"))
    family = stock.config.model_type
    export_huggingface(ours, tokenizer, tmp_path / "export", model_type=family)
    reloaded = type(stock).from_pretrained(tmp_path / "export")
    expected = stock.state_dict()
    assert reloaded.state_dict().keys() == expected.keys()
    unused = (
        "cls.predictions.bias",
        "lm_head.bias",
        "predictions.bias",
        "generator_lm_head.bias",
    )  # ignored if untied: the output layer has another bias
    for name, tensor in reloaded.state_dict().items():
        if stock.config.tie_word_embeddings or name not in unused:
            assert torch.equal(tensor, expected[name]), name


OURS: dict[str, tuple[str, str, list[str]]] = {
    "bert": ("bert", "BertForPreTraining", []),
    "bert-masked": ("bert", "BertForMaskedLM", ["objectives.next-sentence=null"]),
    "bert-pairs": ("bert", "BertForNextSentencePrediction", ["objectives.masked=null"]),
    "bert-untied": ("bert", "BertForPreTraining", ["output.kind=untied"]),
    "bert-relu": (
        "bert",
        "BertForPreTraining",
        ["encoder.feed_forward.kind=relu", "output.activation=relu"],
    ),
    "bert-without-biases": (
        "bert",
        "BertForPreTraining",
        [
            "encoder.mixer.bias=false",
            "encoder.feed_forward.bias=false",
            "encoder.norm.bias=false",
            "output.transform_bias=false",
            "output.bias=false",
        ],
    ),
    "bert-without-segments": (
        "bert",
        "BertForMaskedLM",
        ["encoder.embeddings.segments=0", "objectives.next-sentence=null"],
    ),
    "bert-with-an-offset": ("roberta", "BertForMaskedLM", ["encoder.positions.offset=5"]),
    "bert-isolated": (
        "bert",
        "BertForMaskedLM",
        ["encoder.visibility.kind=document", "objectives.next-sentence=null"],
    ),
    "bert-scaled": ("bert", "BigBirdForPreTraining", ["encoder.embeddings.scaled=true"]),
    "roberta": ("roberta", "RobertaForMaskedLM", []),
    "whole-words": ("bert-whole-words", "BertForPreTraining", []),
    "items": ("bert4rec", "BertForMaskedLM", []),
    "spans": ("spanbert", "BertForMaskedLM", []),
    "structure": ("structbert", "BertForMaskedLM", []),
    "albert": ("albert", "AlbertForPreTraining", []),
    "albert-groups": (
        "albert",
        "AlbertForMaskedLM",
        [
            "encoder.depth={layers: 5, groups: 2}",
            "objectives.sentence-order=null",
            "encoder.embeddings.width=24",
        ],
    ),
    **{
        f"albert-{part}": ("albert", "AlbertForPreTraining", [f"encoder.depth.sharing={part}"])
        for part in ("none", "attention", "feed-forward")
    },
    "albert-wide": ("albert", "AlbertForPreTraining", ["encoder.embeddings.width=32"]),
    "electra": ("electra", "ElectraForPreTraining", []),
    "electra-narrow": (
        "electra",
        "ElectraForPreTraining",
        ["encoder.embeddings={kind: factorised, width: 24, segments: 2, norm: true}"],
    ),
    "longformer": ("longformer", "LongformerForMaskedLM", []),
    "longformer-growing": (
        "longformer",
        "LongformerForMaskedLM",
        ["encoder.visibility.rules=[{kind: windows, sizes: [2, 4]}, {kind: global}]"],
    ),
    "bigbird": ("bigbird", "BigBirdForMaskedLM", []),
    "gpt": ("gpt", "OpenAIGPTLMHeadModel", []),
    "gpt-2": ("gpt-2", "GPT2LMHeadModel", []),
    "xlnet": ("xlnet", "XLNetLMHeadModel", []),
    "mobilebert": ("mobilebert", "MobileBertForPreTraining", []),
    "mobilebert-masked": (
        "mobilebert",
        "MobileBertForMaskedLM",
        [
            "objectives.next-sentence=null",
            "encoder.feed_forward.kind=gelu",
            "output.activation=gelu",
        ],
    ),
    "xlm": ("xlm", "XLMWithLMHeadModel", []),
    "xlm-without-languages": ("xlm", "XLMWithLMHeadModel", ["encoder.embeddings.languages=[]"]),
    "xlm-r": ("xlm-r", "RobertaForMaskedLM", []),
    "modern": ("modern", "ModernBertForMaskedLM", []),
    "modern-local": (
        "modern",
        "ModernBertForMaskedLM",
        ["encoder.sliding_window={every: 2, window: 2, base: 500}", "encoder.depth.layers=4"],
    ),
    "modern-untied": ("modern", "ModernBertForMaskedLM", ["output.kind=untied"]),
    "modern-swiglu": ("modern", "ModernBertForMaskedLM", ["encoder.feed_forward.kind=swiglu"]),
    "modern-biased": (
        "modern",
        "ModernBertForMaskedLM",
        ["encoder.norm.bias=true", "encoder.mixer.bias=true", "encoder.feed_forward.bias=true"],
    ),
}


ROBERTAS = ("roberta", "xlm-r", "longformer")


def build_model(case: str) -> tuple[Model, Tokenizer, str]:
    """A model of ours with random parameters, a tokenizer, and its stock class."""
    system, architecture, overrides = OURS[case]
    recipe = toy(system, *overrides)
    tokenizer = Tokenizer(TOKENIZERS["Roberta" if system in ROBERTAS else "Bert"]())
    model = Model.build(recipe, tokenizer.vocab_size).eval()
    randomise(model, SMALL if system == "mobilebert" else 0.2)
    if system == "mobilebert":
        without_padding(model.encoder.embeddings.tokens)
    return model, tokenizer, architecture


@both_lengths
@pytest.mark.parametrize("case", OURS)
def test_an_exported_model_computes_the_same(
    case: str, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    model, tokenizer, architecture = build_model(case)
    export = export_huggingface(model, tokenizer, tmp_path / "export")
    assert export.architecture == architecture
    stock_class = getattr(transformers, architecture)
    stock, loading = stock_class.from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not any(loading[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    require_equal_outputs(stock.eval(), model, lengths)


@pytest.mark.parametrize("case", OURS)
def test_an_exported_model_round_trips(case: str, tmp_path: Path) -> None:
    model, tokenizer, _ = build_model(case)
    export_huggingface(model, tokenizer, tmp_path / "export")
    imported, imported_tokenizer = import_huggingface(tmp_path / "export")
    token_ids, mask = random_batch(tokenizer.vocab_size, PADDED, tokenizer.special_tokens.pad)
    with torch.inference_mode():
        ours, theirs = (network(token_ids, token_info(mask))[mask] for network in (model, imported))
    require_close(ours, theirs)
    assert imported_tokenizer.special_tokens == tokenizer.special_tokens
    assert imported_tokenizer.settings["model"] == tokenizer.settings["model"]
    if "causal" in model.recipe.objectives:
        first, second = (
            network.recipe.assembly.start_token(tokenizer.special_tokens)
            for network in (model, imported)
        )
        assert first == second


def test_sequences_of_maximum_length(tmp_path: Path) -> None:
    stock = stock_model("RobertaForMaskedLM", type_vocab_size=1)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    assert ours.encoder.max_length == LENGTH - 2
    require_equal_outputs(stock, ours, (LENGTH - 2,))


def test_longformer_without_global_positions(tmp_path: Path) -> None:
    stock = stock_model("LongformerForMaskedLM", **LONG)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    token_ids, mask = random_batch(ours.vocab_size, PADDED, stock.config.pad_token_id)
    with torch.inference_mode():
        expected = stock.base_model(token_ids, mask.long()).last_hidden_state
        require_close(
            ours(token_ids, token_info(mask), WindowVisibility(size=2))[mask], expected[mask]
        )


def test_longformer_with_any_global_positions(tmp_path: Path) -> None:
    stock = stock_model("LongformerForMaskedLM", **LONG)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    token_ids, mask = random_batch(ours.vocab_size, PADDED, stock.config.pad_token_id)
    is_global = torch.zeros_like(token_ids)
    is_global[:, [1, 5]] = 1
    with torch.inference_mode():
        theirs = stock.base_model(
            token_ids, mask.long(), (is_global * mask).long()
        ).last_hidden_state
        visibility = WindowVisibility(size=2) | GlobalVisibility(first=0, positions=(1, 5))
        require_close(ours(token_ids, token_info(mask), visibility)[mask], theirs[mask])


@pytest.mark.parametrize("lengths", [(32, 32), (32, 31)])
def test_bigbird_on_long_sequences_with_our_random_blocks(
    lengths: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"block_size": 2, "num_random_blocks": 2, "max_position_embeddings": 32}
    stock = stock_model("BigBirdForMaskedLM", **settings)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    rule = RandomBlocksVisibility(number=2, block=2, draws=16)
    info = TokenInfo(torch.arange(32)[None]).with_text_lengths()

    def plan(layer: int, head: int) -> Any:
        blocks = rule.at_block(layer).at_head(head).random_blocks(info)
        return torch.stack(blocks, -1)[0, 2:-2:2].numpy()

    layers = iter(range(3))
    attention = transformers.models.big_bird.modeling_big_bird.BigBirdBlockSparseAttention
    monkeypatch.setattr(
        attention,
        "_bigbird_block_rand_mask_with_head",
        lambda self, num_heads, **_: [*map(partial(plan, next(layers)), range(num_heads))],
    )
    token_ids, mask = random_batch(ours.vocab_size, lengths, stock.config.pad_token_id)
    with torch.inference_mode():
        expected = stock.base_model(token_ids, mask.long()).last_hidden_state
        require_close(ours(token_ids, token_info(mask))[mask], expected[mask])


def test_xlnet_with_segments_memory_and_orders(tmp_path: Path) -> None:
    stock = stock_model("XLNetLMHeadModel", **TOKENS, mem_len=20, reuse_len=6, use_mems_eval=True)
    ours, _ = import_huggingface(saved(stock, tmp_path / "stock"))
    generator = torch.Generator().manual_seed(3)
    first, second = torch.randint(5, ours.vocab_size, (2, 2, 9), generator=generator)
    segment_ids = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2]).expand(2, -1)
    positions = torch.tensor([2, 5, 6])
    order = torch.tensor([0, 0, 3, 0, 0, 1, 2, 0, 0])
    is_hidden = order[:, None] < order[None, :]
    is_hidden |= (order[:, None] == order[None, :]) & (order[:, None] > 0)
    mapping = torch.nn.functional.one_hot(positions, 9).float().expand(2, -1, -1)
    with torch.inference_mode():
        mems = stock(input_ids=first, token_type_ids=segment_ids, use_mems=True).mems
        theirs = stock(
            input_ids=second,
            token_type_ids=segment_ids,
            mems=mems,
            perm_mask=is_hidden.float().expand(2, -1, -1),
            target_mapping=mapping,
        ).logits
        memory = Memory.empty(6, first, num_remembered=6)
        segment_info = TokenInfo(torch.arange(9)[None], segment_ids=segment_ids)
        ours.encoder(first, segment_info, memory=memory)
        token_ids = torch.cat((second, second[:, :3]), dim=1)
        is_query = torch.arange(12)[None] >= 9
        query_info = TokenInfo(
            torch.arange(12)[None],
            torch.cat((torch.arange(9), positions))[None],
            torch.cat((segment_ids, segment_ids[:, positions]), dim=1),
            factorisation_order=torch.cat((order, order[positions]))[None],
            is_query_stream=is_query,
        )
        hidden_states = ours.encoder(
            token_ids, query_info, PermutationVisibility(), memory=memory.next_memory(segment_info)
        )
        require_close(ours.logits(hidden_states[:, 9:].flatten(0, 1)), theirs.flatten(0, 1))
