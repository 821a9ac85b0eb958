"""Exported encoders give the same vectors in sentence-transformers."""

import json
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as library
from tokenizers import models, pre_tokenizers
from typer.testing import CliRunner

from benchmarks.embedding.compare import checkpoint_folder
from bertwright.cli.app import app
from bertwright.compression.vocabulary.pruning import prune_vocabulary
from bertwright.core.errors import UserError
from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.interop.huggingface.sentence_transformers_config import read_embedding_settings
from bertwright.interop.loading import load
from bertwright.interop.sentence_transformers import SAMPLE_TEXTS, export_sentence_transformers
from bertwright.models import Model
from bertwright.models.saving import save_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Pooling, SentenceVectorSettings
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.default_head import default_head
from bertwright.tasks.outputs import SimilarityOutput
from bertwright.testing.toy import randomise, toy_text_model
from full_suite import full_except
from small_tasks import ENGLISH, classes, similar
from toy_recipes import toy

SETTINGS = {"epochs": 1, "compile": False, "precision": "float32"}


@pytest.mark.parametrize("pooling", full_except(["mean", "first"], ["mean"]))
def test_a_similarity_model_gives_the_same_vectors(tmp_path: Path, pooling: str) -> None:
    # Imported here because it takes seconds.
    from sentence_transformers import SentenceTransformer

    model = load(checkpoint_folder(), "float32")
    task = table_task("task", Columns(), SimilarityOutput(max_label=5.0))
    head = {"kind": "plain", "pooling": pooling}
    settings = {"train": similar(), "dev": similar(), "max_length": 16, **SETTINGS}
    finetune(model, task, output=tmp_path / "ours", head=head, **settings)
    tuned = load(tmp_path / "ours", "float32")
    export_sentence_transformers(tuned, tmp_path / "export", verify=True)
    theirs = SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(list(SAMPLE_TEXTS))
    ours = [
        prediction.vectors[0]
        for prediction in tuned.predict([(text, "A text.") for text in SAMPLE_TEXTS])
    ]
    assert np.abs(theirs - ours).max() < 1e-5
    assert np.abs(theirs - tuned.embed(list(SAMPLE_TEXTS))).max() < 1e-5


@pytest.mark.parametrize(("pooling", "head_pooling"), [("cls", "first"), ("mean", "mean")])
def test_the_default_similarity_head_pools_as_the_recipe(
    pooling: Pooling, head_pooling: str
) -> None:
    recipe = toy("bert").model_copy(update={"vectors": SentenceVectorSettings(pooling=pooling)})
    assert default_head(recipe, SimilarityOutput()).pooling == head_pooling


@pytest.fixture(scope="module")
def encoder() -> TextModel:
    """An encoder whose vectors depend on the pooling."""
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    recipe = toy("bert", "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")


def test_projected_vectors_survive_repeated_export_and_import(tmp_path: Path) -> None:
    for projection in ("{width: 9, activation: tanh}", "{width: 40, bias: false}"):
        model = any_encoder("bert", f"vectors.projection={projection}", "vectors.normalise=true")
        assert model.model.vector_projection is not None
        randomise(model.model.vector_projection)
        vectors = model.embed(SAMPLE_TEXTS, normalise=True)
        for index in range(2):
            folder = tmp_path / f"{projection} {index}"
            export_sentence_transformers(model, folder, verify=True)
            model = load(folder, "float32")
            assert np.abs(model.embed(SAMPLE_TEXTS, normalise=True) - vectors).max() < 1e-5


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("activation_function", "torch.nn.modules.activation.GELU", "projects vectors with .*GELU"),
        ("use_residual", True, "adds vectors to their projection"),
        ("module_input_name", "token_embeddings", "projects token embeddings"),
        ("out_features", None, r"2_Dense.config.json: width"),
    ],
)
def test_other_dense_layers_are_refused(
    tmp_path: Path, key: str, value: object, message: str
) -> None:
    export_sentence_transformers(
        any_encoder("bert", "vectors.projection={width: 9}"), tmp_path / "e"
    )
    config = tmp_path / "e" / "2_Dense" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    with pytest.raises(UserError, match=message):
        load(tmp_path / "e")


@pytest.mark.parametrize(("pooling", "longest"), [("mean", None), ("mean", 9), ("cls", 9)])
def test_vectors_survive_repeated_export_and_import(
    tmp_path: Path, encoder: TextModel, pooling: Pooling, longest: int | None
) -> None:
    network = copy(encoder.model)
    settings = SentenceVectorSettings(pooling=pooling, longest=longest)
    network.recipe = network.recipe.model_copy(update={"vectors": settings})
    model = TextModel(network, encoder.tokenizer, "float32")
    vectors = model.embed(SAMPLE_TEXTS)
    for index in range(2):
        folder = tmp_path / str(index)
        export_sentence_transformers(model, folder, verify=True)
        save_model(tmp_path / f"ours {index}", *import_huggingface(folder))
        prune_vocabulary(load(tmp_path / f"ours {index}"), SAMPLE_TEXTS).save(
            tmp_path / f"small {index}"
        )
        for exported in (folder, tmp_path / f"ours {index}", tmp_path / f"small {index}"):
            model = load(exported, "float32")
            assert np.abs(model.embed(SAMPLE_TEXTS) - vectors).max() < 1e-5
    sequences = encoder.encode_ids(SAMPLE_TEXTS)
    assert [len(token_ids) for token_ids in model.encode_ids(SAMPLE_TEXTS)] == [
        min(len(ids), longest or 512) for ids in sequences
    ]


def any_encoder(*recipe: str) -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=160))
    toy_recipe = toy(*recipe, "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(toy_recipe, tokenizer.vocab_size, tokenizer), tokenizer, "float32")


@pytest.mark.parametrize(
    "system",
    full_except(
        ("modern", "gpt-2", "albert", "mobilebert", "t5", "xlnet", "gpt", "electra", "roberta"),
        kept=("modern", "gpt-2", "mobilebert", "t5"),
    ),
)
def test_any_encoder_gives_the_same_vectors_at_any_length(tmp_path: Path, system: str) -> None:
    model = any_encoder(system)
    export_sentence_transformers(model, tmp_path / "export", verify=True)
    imported = load(tmp_path / "export", "float32")
    assert imported.max_length == model.max_length
    assert np.abs(imported.embed(SAMPLE_TEXTS) - model.embed(SAMPLE_TEXTS)).max() < 1e-5


NOT_STANDALONE = {
    "returns the hidden states of its decoder": ("bart",),
    "XLM needs more than a text: `langs`": ("xlm",),
    "Longformer needs more than a text": ("longformer", "encoder.positions.offset=1"),
    "differs for texts of more than 14 tokens": ("bigbird",),
}


@pytest.mark.parametrize("message", NOT_STANDALONE)
def test_stock_classes_that_need_more_than_texts_are_refused(tmp_path: Path, message: str) -> None:
    with pytest.raises(UserError, match=message):
        export_sentence_transformers(any_encoder(*NOT_STANDALONE[message]), tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_bigbird_is_exported_with_a_short_maximum_length(tmp_path: Path) -> None:
    model = any_encoder("bigbird")
    network = model.model
    network.recipe = network.recipe.model_copy(
        update={"vectors": SentenceVectorSettings(longest=14)}
    )
    short = TextModel(network, model.tokenizer, "float32")
    export_sentence_transformers(short, tmp_path / "export", verify=True)


def test_a_published_causal_model_encodes_as_embed_does(tmp_path: Path) -> None:
    backend = library.Tokenizer(models.WordLevel({"a": 0, "<|endoftext|>": 1}, "<|endoftext|>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<|endoftext|>"])
    roles = dict.fromkeys(("unknown", "start", "end", "pad", "mask"), "<|endoftext|>")
    tokenizer = Tokenizer(backend, roles)
    model = TextModel(Model.build(toy("gpt-2"), tokenizer.vocab_size), tokenizer, "float32")
    export_sentence_transformers(model, tmp_path / "export", verify=True)


POOLING_CONFIGS = {
    "mean": {},
    "cls": {"pooling_mode": "cls"},
    "pools by lasttoken": {"pooling_mode": "lasttoken"},
    "pools by pooling_mode_max_tokens": {"pooling_mode_max_tokens": True},
    "pools by cls and mean": {"pooling_mode": ["cls", "mean"]},
}


@pytest.mark.parametrize("expected", POOLING_CONFIGS)
def test_the_pooling_is_imported_or_refused(
    tmp_path: Path, encoder: TextModel, expected: str
) -> None:
    export_sentence_transformers(encoder, tmp_path / "ours")
    (tmp_path / "ours" / "1_Pooling" / "config.json").write_text(
        json.dumps(POOLING_CONFIGS[expected])
    )
    if expected in ("mean", "cls"):
        assert load(tmp_path / "ours").model.recipe.vectors.pooling == expected
        return
    with pytest.raises(UserError, match=expected):
        load(tmp_path / "ours")


@pytest.mark.full
def test_the_start_token_of_xlnet_is_the_last(tmp_path: Path) -> None:
    model = any_encoder("xlnet")
    network, vectors = model.model, SentenceVectorSettings(pooling="cls")
    network.recipe = network.recipe.model_copy(update={"vectors": vectors})
    model = TextModel(network, model.tokenizer, "float32")
    export_sentence_transformers(model, tmp_path / "ours", verify=True)
    imported = load(tmp_path / "ours", "float32")
    assert imported.model.recipe.vectors.pooling == "cls"
    assert np.abs(imported.embed(SAMPLE_TEXTS) - model.embed(SAMPLE_TEXTS)).max() < 1e-5
    file = tmp_path / "ours" / "1_Pooling" / "config.json"
    for pooling, message in (("lasttoken", ""), ("cls", "which here is a word")):
        file.write_text(json.dumps({"pooling_mode": pooling}))
        with pytest.raises(UserError, match=message) if message else nullcontext():
            load(tmp_path / "ours")


def test_unsupported_modules_are_refused(tmp_path: Path, encoder: TextModel) -> None:
    export_sentence_transformers(encoder, tmp_path / "ours")
    file = tmp_path / "ours" / "modules.json"
    modules = json.loads(file.read_text())
    for name, message in (("Normalize", ""), ("Dense", "in this order"), ("LSTM", "module LSTM")):
        modules.append({"path": f"2_{name}", "type": f"sentence_transformers.models.{name}"})
        file.write_text(json.dumps(modules))
        if name == "Normalize":
            load(tmp_path / "ours")
            continue
        with pytest.raises(UserError, match=f"{message}.*remove modules.json"):
            load(tmp_path / "ours")
    file.unlink()
    load(tmp_path / "ours")


def foreign_folder(folder: Path, encoder: TextModel, **model_config: Any) -> Path:
    """A folder with a Normalize module and other settings, as sentence-transformers writes it."""
    export_sentence_transformers(encoder, folder)
    modules = json.loads((folder / "modules.json").read_text())
    name = "sentence_transformers.models.Normalize"
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": name})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "2_Normalize").mkdir()
    settings = {"__version__": {"sentence_transformers": "6.0.0"}, **model_config}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


SETTINGS_TO_KEEP = [
    {},
    {"prompts": {"query": "the red ", "document": ""}, "default_prompt_name": "query"},
    {"prompts": {"query": "the red ", "document": None}, "default_prompt_name": None},
    {"truncate_dim": 8, "similarity_fn_name": "dot"},
]


@pytest.mark.parametrize("model_config", SETTINGS_TO_KEEP, ids=str)
def test_settings_of_a_foreign_folder_are_kept(
    tmp_path: Path, encoder: TextModel, model_config: dict[str, Any]
) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = foreign_folder(tmp_path / "theirs", encoder, **model_config)
    save_model(tmp_path / "ours", *import_huggingface(theirs))
    export_sentence_transformers(load(tmp_path / "ours"), tmp_path / "export", verify=True)
    before, after = (
        SentenceTransformer(str(folder), device="cpu") for folder in (theirs, tmp_path / "export")
    )
    assert np.abs(before.encode(list(SAMPLE_TEXTS)) - after.encode(list(SAMPLE_TEXTS))).max() < 1e-5
    assert [type(module) for module in before] == [type(module) for module in after]
    assert before.max_seq_length == after.max_seq_length
    for name in ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name"):
        assert getattr(before, name) == getattr(after, name)


PROMPTS = [
    {"prompts": {"query": "the red ", "document": "an old "}},
    {"prompts": {"passage": "an old", "corpus": "the red "}, "default_prompt_name": "corpus"},
    {"prompts": {"query": "", "tree": "the red "}, "default_prompt_name": "tree"},
    {"prompts": {"query": "the red "}, "truncate_dim": 8},
    {},
]


@pytest.mark.parametrize("model_config", PROMPTS, ids=str)
def test_queries_and_documents_have_their_prompts(
    tmp_path: Path, encoder: TextModel, model_config: dict[str, Any]
) -> None:
    from sentence_transformers import SentenceTransformer

    folder = foreign_folder(tmp_path / "theirs", encoder, **model_config)
    stock = SentenceTransformer(str(folder), device="cpu")
    ours = load(folder, "float32").retrieval_encoder()
    texts = list(SAMPLE_TEXTS)
    queries, documents = stock.encode_query(texts), stock.encode_document(texts)
    assert ours.width == queries.shape[1]
    np.testing.assert_allclose(ours.encode_queries(texts), queries, atol=1e-5)
    np.testing.assert_allclose(ours.encode_documents(texts), documents, atol=1e-5)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "there is no prompt"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim: must be 1"),
        ("config_sentence_transformers.json", {"prompts": ["x"]}, "prompts: must be a mapping"),
        (
            "2_Normalize/config.json",
            {"module_input_name": "token_embeddings"},
            "normalises token embeddings",
        ),
        ("modules.json", [{"type": "m.Normalize"}, {"type": "m.Pooling"}], "in this order"),
        ("modules.json", {"0": "Transformer"}, "no JSON list"),
    ],
)
def test_unsupported_settings_are_refused(
    tmp_path: Path, encoder: TextModel, file: str, content: Any, message: str
) -> None:
    folder = foreign_folder(tmp_path / "theirs", encoder)
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        load(folder)


def test_pooling_without_the_prompt_is_refused(tmp_path: Path, encoder: TextModel) -> None:
    model_config = {"prompts": {"query": "the "}}
    folder = foreign_folder(tmp_path / "theirs", encoder, **model_config)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"include_prompt": False}))
    with pytest.raises(UserError, match="pools without its prompts"):
        load(folder)


@pytest.mark.parametrize("system", ["bert", "modern", "gpt-2", "albert", "roberta", "xlnet"])
def test_pretraining_heads_are_left_out(tmp_path: Path, system: str) -> None:
    from transformers import AutoModel

    export_sentence_transformers(any_encoder(system), tmp_path / "export", verify=True)
    _, report = AutoModel.from_pretrained(tmp_path / "export", output_loading_info=True)
    assert not report["unexpected_keys"]
    assert not [key for key in report["missing_keys"] if not key.startswith("pooler.")]


LENGTHS = [
    ({"max_seq_length": 9}, {}, {}, 9),
    ({"max_seq_length": 9}, {"model_max_length": 7}, {}, 9),
    ({}, {"model_max_length": 7}, {}, 7),
    ({}, {"model_max_length": 10**30}, {"max_position_embeddings": 8}, 8),
    ({}, {}, {"max_position_embeddings": -1}, None),
]


@pytest.mark.parametrize(("module", "tokenizer", "stock", "max_length"), LENGTHS)
def test_the_maximum_length_is_that_of_sentence_transformers(
    tmp_path: Path, module: dict, tokenizer: dict, stock: dict, max_length: int | None
) -> None:
    for name in ("sentence_bert_config.json", "sentence_roberta_config.json"):
        folder = tmp_path / name
        folder.mkdir()
        files = {"modules.json": [], name: module, "tokenizer_config.json": tokenizer}
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        assert read_embedding_settings(folder, stock, True).longest == max_length


def test_lowercasing_before_the_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    read_embedding_settings(tmp_path, {}, True)
    with pytest.raises(UserError, match="lowercases texts before its tokenizer"):
        read_embedding_settings(tmp_path, {}, False)


def test_the_command_line_exports(tmp_path: Path) -> None:
    out = tmp_path / "export"
    result = CliRunner().invoke(
        app,
        ["export", str(checkpoint_folder()), "--to", "sentence-transformers", "-o", str(out),
         "--verify"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    module_lists = [
        json.loads((folder / "modules.json").read_text()) for folder in (checkpoint_folder(), out)
    ]
    assert module_lists[0] == module_lists[1]


def test_a_model_without_vectors_is_refused(tmp_path: Path) -> None:
    model = load(checkpoint_folder(), "float32")
    result = finetune(model, table_task("task", Columns()), train=classes(), **SETTINGS)
    with pytest.raises(UserError, match="a model for task does not embed texts"):
        export_sentence_transformers(result.model, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_an_encoder_trained_by_a_decoder_of_vectors_is_exported_without_it(tmp_path: Path) -> None:
    model = toy_text_model([ENGLISH], recipe="tsdae")
    report = export_sentence_transformers(model, tmp_path / "export", verify=True)
    assert report.architecture == "BertModel"
    assert json.loads((tmp_path / "export" / "1_Pooling" / "config.json").read_text())[
        "pooling_mode_cls_token"
    ]
