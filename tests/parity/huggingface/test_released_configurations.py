"""Models with the configuration keys of released checkpoints, except sizes.

Released configurations have other values than the defaults of their classes, and keys of older
versions. The keys are as remembered: no checkpoint was downloaded.
"""

from pathlib import Path
from typing import Any

import pytest

from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.importer import import_huggingface
from stock_models import saved, stock_model

SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
}
TRANSLATION = {"translation_en_to_de": {"max_length": 300, "num_beams": 4, "prefix": "translate: "}}

RELEASED: dict[str, tuple[str, dict[str, Any]]] = {
    "bert-base-uncased": (
        "BertForMaskedLM",
        {"gradient_checkpointing": False, "position_embedding_type": "absolute", "use_cache": True},
    ),
    "bert-base-multilingual-cased": (
        "BertForMaskedLM",
        {
            "directionality": "bidi",
            "pooler_fc_size": 768,
            "pooler_num_attention_heads": 12,
            "pooler_num_fc_layers": 3,
            "pooler_size_per_head": 128,
            "pooler_type": "first_token_transform",
        },
    ),
    "roberta-base": (
        "RobertaForMaskedLM",
        {"bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5, "type_vocab_size": 1},
    ),
    "xlm-roberta-base": (
        "XLMRobertaForMaskedLM",
        {"bos_token_id": 0, "eos_token_id": 2, "output_past": True, "type_vocab_size": 1},
    ),
    "albert-base-v2": (
        "AlbertForMaskedLM",
        {
            "attention_probs_dropout_prob": 0,
            "classifier_dropout_prob": 0.1,
            "down_scale_factor": 1,
            "gap_size": 0,
            "hidden_act": "gelu_new",
            "hidden_dropout_prob": 0,
            "inner_group_num": 1,
            "net_structure_type": 0,
            "num_hidden_groups": 1,
            "num_memory_blocks": 0,
        },
    ),
    "electra-small-discriminator": (
        "ElectraForPreTraining",
        {
            "summary_activation": "gelu",
            "summary_last_dropout": 0.1,
            "summary_type": "first",
            "summary_use_proj": True,
        },
    ),
    "distilbert-base-uncased": (
        "DistilBertForMaskedLM",
        {
            "activation": "gelu",
            "qa_dropout": 0.1,
            "seq_classif_dropout": 0.2,
            "sinusoidal_pos_embds": False,
            "tie_weights_": True,
        },
    ),
    "xlnet-base-cased": (
        "XLNetLMHeadModel",
        {
            "attn_type": "bi",
            "bi_data": False,
            "clamp_len": -1,
            "end_n_top": 5,
            "ff_activation": "gelu",
            "mem_len": None,
            "reuse_len": None,
            "same_length": False,
            "start_n_top": 5,
            "untie_r": True,
            **SUMMARY,
            "summary_activation": "tanh",
            "summary_type": "last",
        },
    ),
    "xlm-mlm-en-2048": (
        "XLMWithLMHeadModel",
        {
            "asm": False,
            "causal": False,
            "gelu_activation": True,
            "is_encoder": True,
            "n_langs": 1,
            "sinusoidal_embeddings": False,
            "use_lang_emb": True,
        },
    ),
    "longformer-base-4096": (
        "LongformerForMaskedLM",
        {
            "attention_mode": "longformer",
            "attention_window": [4, 4, 4],
            "gradient_checkpointing": False,
            "ignore_attention_mask": False,
            "sep_token_id": 2,
            "type_vocab_size": 1,
        },
    ),
    "bigbird-roberta-base": (
        "BigBirdForMaskedLM",
        {
            "attention_type": "original_full",
            "gradient_checkpointing": False,
            "hidden_act": "gelu_new",
            "num_random_blocks": 3,
            "rescale_embeddings": False,
            "use_bias": True,
        },
    ),
    "mobilebert-uncased": (
        "MobileBertForPreTraining",
        {"classifier_activation": False, "true_hidden_size": 16, "trigram_input": True},
    ),
    "t5-small": (
        "T5ForConditionalGeneration",
        {
            "decoder_start_token_id": 0,
            "is_encoder_decoder": True,
            "n_positions": 512,
            "output_past": True,
            "relative_attention_num_buckets": 32,
            "task_specific_params": TRANSLATION,
        },
    ),
    "bart-base": (
        "BartForConditionalGeneration",
        {
            "activation_function": "gelu",
            "add_bias_logits": False,
            "add_final_layer_norm": False,
            "classif_dropout": 0.1,
            "classifier_dropout": 0.0,
            "gradient_checkpointing": False,
            "normalize_before": False,
            "normalize_embedding": True,
            "scale_embedding": False,
            "static_position_embeddings": False,
            "task_specific_params": TRANSLATION,
        },
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        {
            "activation_function": "gelu_new",
            "n_ctx": 16,
            "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            **SUMMARY,
        },
    ),
    "openai-gpt": (
        "OpenAIGPTLMHeadModel",
        {"afn": "gelu", "n_ctx": 16, "n_special": 0, "predict_special_tokens": True, **SUMMARY},
    ),
    "ModernBERT-base": (
        "ModernBertForMaskedLM",
        {
            "classifier_activation": "gelu",
            "classifier_bias": False,
            "classifier_pooling": "mean",
            "decoder_bias": True,
            "deterministic_flash_attn": False,
            "gradient_checkpointing": False,
            "position_embedding_type": "absolute",
            "sparse_pred_ignore_index": -100,
            "sparse_prediction": False,
        },
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_released_configurations_are_read(name: str, tmp_path: Path) -> None:
    architecture, keys = RELEASED[name]
    model, tokenizer = import_huggingface(
        saved(stock_model(architecture, **keys), tmp_path / "stock")
    )
    export = export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == architecture
