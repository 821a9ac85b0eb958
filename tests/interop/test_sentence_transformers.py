"""An encoder as sentence-transformers reads it: the same vectors."""

import json
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers as library
from tokenizers import models, pre_tokenizers
from typer.testing import CliRunner

from bertwright.bench.embedding import checkpoint_folder
from bertwright.cli.application import app
from bertwright.compression.trimming import trim
from bertwright.errors import UserError
from bertwright.interop.huggingface import import_folder
from bertwright.interop.huggingface.sentence_vectors import read_sentence_vectors
from bertwright.interop.loading import load
from bertwright.interop.sentence_transformers import TEXTS, export_sentence_transformers
from bertwright.model import Model
from bertwright.model.folder import save_model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Pooling, Vectors
from bertwright.tasks.answers import ClosenessAnswer
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.fitting_heads import default_head
from bertwright.tasks.formats.tables import Columns
from bertwright.text.tokenizers import Tokenizer, WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import ENGLISH, classes, similar

SETTINGS = {"epochs": 1, "compile": False, "precision": "float32"}


@pytest.mark.parametrize("read", ["mean", "first"])
def test_a_model_of_closeness_gives_the_same_vectors(tmp_path: Path, read: str) -> None:
    # Takes seconds to import, which the other worker need not spend.
    from sentence_transformers import SentenceTransformer

    model = load(checkpoint_folder(), "float32")
    task = table_task("own", Columns(), ClosenessAnswer(highest=5.0))
    head = {"kind": "plain", "read": read}
    learned = {"train": similar(), "dev": similar(), "length": 16, **SETTINGS}
    finetune(model, task, out=tmp_path / "own", head=head, **learned)
    tuned = load(tmp_path / "own", "float32")
    export_sentence_transformers(tuned, tmp_path / "export", verify=True)
    theirs = SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(list(TEXTS))
    ours = [said.vectors[0] for said in tuned.predict([(text, "A text.") for text in TEXTS])]
    assert np.abs(theirs - ours).max() < 1e-5
    assert np.abs(theirs - tuned.embed(list(TEXTS))).max() < 1e-5


@pytest.mark.parametrize(("pooling", "read"), [("cls", "first"), ("mean", "mean")])
def test_vectors_are_tuned_as_they_are_made(pooling: Pooling, read: str) -> None:
    recipe = toy("bert").model_copy(update={"vectors": Vectors(pooling=pooling)})
    assert default_head(recipe, ClosenessAnswer()).read == read


@pytest.fixture(scope="module")
def encoder() -> TextModel:
    """An encoder whose vectors differ from pooling to pooling."""
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    recipe = toy("bert", "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(recipe, tokenizer.size, tokenizer), tokenizer, "float32")


@pytest.mark.parametrize(("pooling", "longest"), [("mean", None), ("mean", 9), ("cls", 9)])
def test_vectors_are_the_same_whoever_writes_and_reads_them(
    tmp_path: Path, encoder: TextModel, pooling: Pooling, longest: int | None
) -> None:
    net = copy(encoder.model)
    own = Vectors(pooling=pooling, longest=longest)
    net.recipe = net.recipe.model_copy(update={"vectors": own})
    model = TextModel(net, encoder.tokenizer, "float32")
    vectors = model.embed(TEXTS)
    for number in range(2):
        folder = tmp_path / str(number)
        export_sentence_transformers(model, folder, verify=True)
        save_model(tmp_path / f"own {number}", *import_folder(folder))
        trim(load(tmp_path / f"own {number}"), TEXTS).save(tmp_path / f"small {number}")
        for written in (folder, tmp_path / f"own {number}", tmp_path / f"small {number}"):
            model = load(written, "float32")
            assert np.abs(model.embed(TEXTS) - vectors).max() < 1e-5
    ends = encoder.rows(TEXTS)
    assert [len(row) for row in model.rows(TEXTS)] == [min(len(r), longest or 512) for r in ends]


def any_encoder(*recipe: str) -> TextModel:
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=160))
    drawn = toy(*recipe, "encoder.initialisation={kind: width-aware}")
    return TextModel(Model.build(drawn, tokenizer.size, tokenizer), tokenizer, "float32")


@pytest.mark.parametrize(
    "system",
    ["modern", "gpt-2", "gpt", "albert", "electra", "roberta", "mobilebert", "t5", "xlnet"],
)
def test_an_encoder_of_any_kind_gives_its_vectors_of_texts_of_any_length(
    tmp_path: Path, system: str
) -> None:
    model = any_encoder(system)
    export_sentence_transformers(model, tmp_path / "export", verify=True)
    again = load(tmp_path / "export", "float32")
    assert again.longest == model.longest
    assert np.abs(again.embed(TEXTS) - model.embed(TEXTS)).max() < 1e-5


ALONE = {
    "ends with the states of its decoder": ("bart",),
    "XLM must be told more than a text: `langs`": ("xlm",),
    "Longformer must be told more than a text": ("longformer", "encoder.positions.offset=1"),
    "other states of texts of more than 14 pieces": ("bigbird",),
}


@pytest.mark.parametrize("said", ALONE)
def test_what_texts_alone_do_not_tell_a_stock_class_is_not_written(
    tmp_path: Path, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        export_sentence_transformers(any_encoder(*ALONE[said]), tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_rows_that_are_short_enough_are_read_alike(tmp_path: Path) -> None:
    model = any_encoder("bigbird")
    own = model.model
    own.recipe = own.recipe.model_copy(update={"vectors": Vectors(longest=14)})
    short = TextModel(own, model.tokenizer, "float32")
    export_sentence_transformers(short, tmp_path / "export", verify=True)


def test_a_causal_model_that_was_published_is_given_what_embed_reads(tmp_path: Path) -> None:
    backend = library.Tokenizer(models.WordLevel({"a": 0, "<|endoftext|>": 1}, "<|endoftext|>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(["<|endoftext|>"])
    roles = dict.fromkeys(("unknown", "start", "end", "pad", "mask"), "<|endoftext|>")
    tokenizer = Tokenizer(backend, roles)
    model = TextModel(Model.build(toy("gpt-2"), tokenizer.size), tokenizer, "float32")
    export_sentence_transformers(model, tmp_path / "export", verify=True)


POOLED = {
    "mean": {},
    "cls": {"pooling_mode": "cls"},
    "pools by lasttoken": {"pooling_mode": "lasttoken"},
    "pools by pooling_mode_max_tokens": {"pooling_mode_max_tokens": True},
    "pools by cls and mean": {"pooling_mode": ["cls", "mean"]},
}


@pytest.mark.parametrize("said", POOLED)
def test_what_vectors_are_made_of_is_read_or_refused(
    tmp_path: Path, encoder: TextModel, said: str
) -> None:
    export_sentence_transformers(encoder, tmp_path / "own")
    (tmp_path / "own" / "1_Pooling" / "config.json").write_text(json.dumps(POOLED[said]))
    if said in ("mean", "cls"):
        assert load(tmp_path / "own").model.recipe.vectors.pooling == said
        return
    with pytest.raises(UserError, match=said):
        load(tmp_path / "own")


def test_modules_that_change_vectors_are_refused_and_the_encoder_can_be_read(
    tmp_path: Path, encoder: TextModel
) -> None:
    export_sentence_transformers(encoder, tmp_path / "own")
    file = tmp_path / "own" / "modules.json"
    modules = json.loads(file.read_text())
    for name in ("Normalize", "Dense"):
        modules.append({"path": f"2_{name}", "type": f"sentence_transformers.models.{name}"})
        file.write_text(json.dumps(modules))
        if name == "Normalize":
            load(tmp_path / "own")
            continue
        with pytest.raises(UserError, match=r"has the module Dense.*without its modules.json"):
            load(tmp_path / "own")
    file.unlink()
    load(tmp_path / "own")


def foreign(folder: Path, encoder: TextModel, **about: Any) -> Path:
    """A folder with a Normalize module and other settings, as sentence-transformers writes it."""
    export_sentence_transformers(encoder, folder)
    modules = json.loads((folder / "modules.json").read_text())
    name = "sentence_transformers.models.Normalize"
    modules.append({"idx": 2, "name": "2", "path": "2_Normalize", "type": name})
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "2_Normalize").mkdir()
    settings = {"__version__": {"sentence_transformers": "6.0.0"}, **about}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


KEPT = [
    {},
    {"prompts": {"query": "the red ", "document": ""}, "default_prompt_name": "query"},
    {"prompts": {"query": "the red ", "document": None}, "default_prompt_name": None},
    {"truncate_dim": 8, "similarity_fn_name": "dot"},
]


@pytest.mark.parametrize("about", KEPT, ids=str)
def test_settings_of_a_foreign_folder_are_kept(
    tmp_path: Path, encoder: TextModel, about: dict[str, Any]
) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = foreign(tmp_path / "theirs", encoder, **about)
    save_model(tmp_path / "own", *import_folder(theirs))
    export_sentence_transformers(load(tmp_path / "own"), tmp_path / "export", verify=True)
    before, after = (
        SentenceTransformer(str(folder), device="cpu") for folder in (theirs, tmp_path / "export")
    )
    assert np.abs(before.encode(list(TEXTS)) - after.encode(list(TEXTS))).max() < 1e-5
    assert [type(module) for module in before] == [type(module) for module in after]
    assert before.max_seq_length == after.max_seq_length
    for name in ("prompts", "default_prompt_name", "truncate_dim", "similarity_fn_name"):
        assert getattr(before, name) == getattr(after, name)


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config_sentence_transformers.json", {"default_prompt_name": "x"}, "there is no prompt"),
        ("config_sentence_transformers.json", {"truncate_dim": 0}, "truncate_dim: must be 1"),
        ("config_sentence_transformers.json", {"prompts": ["x"]}, "prompts: must be a mapping"),
        ("2_Normalize/config.json", {"module_input_name": "token_embeddings"}, "states of tokens"),
        ("modules.json", [{"type": "m.Normalize"}, {"type": "m.Pooling"}], "in this order"),
        ("modules.json", {"0": "Transformer"}, "no JSON list"),
    ],
)
def test_settings_that_cannot_be_kept_are_refused(
    tmp_path: Path, encoder: TextModel, file: str, content: Any, said: str
) -> None:
    folder = foreign(tmp_path / "theirs", encoder)
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=said):
        load(folder)


def test_a_prompt_that_is_not_pooled_is_refused(tmp_path: Path, encoder: TextModel) -> None:
    about = {"prompts": {"query": "the "}, "default_prompt_name": "query"}
    folder = foreign(tmp_path / "theirs", encoder, **about)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"include_prompt": False}))
    with pytest.raises(UserError, match="pools without its default prompt"):
        load(folder)


@pytest.mark.parametrize("system", ["bert", "modern", "gpt-2", "albert", "roberta", "xlnet"])
def test_heads_of_pre_training_are_left_out(tmp_path: Path, system: str) -> None:
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


@pytest.mark.parametrize(("own", "tokenizer", "stock", "longest"), LENGTHS)
def test_the_longest_row_is_the_one_that_sentence_transformers_takes(
    tmp_path: Path, own: dict, tokenizer: dict, stock: dict, longest: int | None
) -> None:
    for name in ("sentence_bert_config.json", "sentence_roberta_config.json"):
        folder = tmp_path / name
        folder.mkdir()
        files = {"modules.json": [], name: own, "tokenizer_config.json": tokenizer}
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        assert read_sentence_vectors(folder, stock, True).longest == longest


def test_small_letters_that_no_tokenizer_makes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    read_sentence_vectors(tmp_path, {}, True)
    with pytest.raises(UserError, match="small letters of large ones before its tokenizer"):
        read_sentence_vectors(tmp_path, {}, False)


def test_the_command_line_writes_the_same(tmp_path: Path) -> None:
    out = tmp_path / "export"
    said = CliRunner().invoke(
        app,
        ["export", str(checkpoint_folder()), "--to", "sentence-transformers", "-o", str(out),
         "--verify"],
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    stated = [json.loads((f / "modules.json").read_text()) for f in (checkpoint_folder(), out)]
    assert stated[0] == stated[1]


def test_a_model_without_vectors_is_refused(tmp_path: Path) -> None:
    model = load(checkpoint_folder(), "float32")
    found = finetune(model, table_task("own", Columns()), train=classes(), **SETTINGS)
    with pytest.raises(UserError, match="a model for own gives no vectors"):
        export_sentence_transformers(found.model, tmp_path / "export")
    assert not (tmp_path / "export").exists()
