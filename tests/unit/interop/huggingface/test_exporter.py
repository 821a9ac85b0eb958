"""Which files an export writes, and which recipes are refused."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from bertwright.core.errors import MissingExtra, UserError
from bertwright.data.tokenization.tokenizer import Tokenizer, TokenizerConfig
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.interop import parity
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.huggingface.families.registry import FAMILIES
from bertwright.interop.huggingface.importer import import_huggingface
from bertwright.models import Model
from bertwright.modules.attention.mask import GlobalVisibility, WindowVisibility
from bertwright.recipes.loading import system_names
from bertwright.tasks.example_encoder import ExampleEncoder
from bertwright.tasks.formats.examples import Example
from stock_models import SMALL, TOKENIZERS, randomise, saved, stock_model
from toy_recipes import toy

SENTENCE, SECOND = "The ships, three of them: SHIPS!", "Zwölf 东京"


def build_model(system: str, *overrides: str) -> tuple[Model, Tokenizer]:
    """A random model of a recipe."""
    tokenizer = Tokenizer(
        TOKENIZERS["Roberta" if system in ("roberta", "longformer") else "Bert"]()
    )
    model = Model.build(toy(system, *overrides), tokenizer.vocab_size).eval()
    randomise(model, SMALL if system == "mobilebert" else 0.2)
    return model, tokenizer


NO_STOCK_CLASS = [
    "awd-lstm",
    "awd-lstm-backward",
    "bi-skip",
    "bilstm-student",
    "cove",
    "elmo",
    "ernie-2",
    "fasttext",
    "fixed-patterns",
    "gpt-bert",
    "ib-bert",
    "longformer-char",
    "lstm-lm",
    "lstm-autoencoder",
    "mass",
    "performer",
    "reformer",
    "sandwich",
    "skip-thought",
    "transformer-xl",
    "transformer",
    # Without its decoder, it is exported to sentence-transformers.
    "tsdae",
    "universal-transformer",
    "word2vec",
    "xlm-e",
]


@pytest.mark.parametrize("system", sorted({*system_names()} - {*NO_STOCK_CLASS}))
def test_every_system_is_exported_and_verified(system: str, tmp_path: Path) -> None:
    model, tokenizer = build_model(system)
    export = export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    assert export.max_difference is not None
    assert export.max_difference < 1e-5
    files = {file.name for file in (tmp_path / "export").iterdir()}
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert files == expected | {"README.md"} | (
        {"vocab.txt"} if tokenizer.kind == "wordpiece" else set()
    )


@pytest.mark.parametrize("system", ["albert", "bigbird", "roberta", "bert"])
@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_pairs_are_encoded_as_in_training(system: str, kind: str, tmp_path: Path) -> None:
    config = TokenizerConfig.parse({"kind": kind, "vocab_size": 120})
    tokenizer = train_tokenizer([f"{SENTENCE} {SECOND}"] * 9, config)
    model = Model.build(toy(system), tokenizer.vocab_size).eval()
    export_huggingface(model, tokenizer, tmp_path / "export")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    encoder = ExampleEncoder.from_recipe(model.recipe, tokenizer, None)
    (sequence,) = encoder.encode([Example(SENTENCE, SECOND)])
    encoding = stock(SENTENCE, SECOND)
    assert encoding["input_ids"] == sequence.token_ids
    if sequence.segment_ids is not None:
        assert encoding["token_type_ids"] == sequence.segment_ids


@pytest.mark.parametrize("system", ["albert", "bigbird", "roberta", "bert"])
@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_an_imported_encoder_encodes_pairs_as_the_stock_tokenizer(
    system: str, kind: str, tmp_path: Path
) -> None:
    """Its recipe has no pairs, so that the tokenizer decides on their separators."""
    config = TokenizerConfig.parse({"kind": kind, "vocab_size": 120})
    tokenizer = train_tokenizer([f"{SENTENCE} {SECOND}"] * 9, config)
    recipe = toy(system)
    only_masked = (f"objectives.{name}=null" for name in recipe.objectives if name != "masked")
    model = Model.build(toy(system, *only_masked), tokenizer.vocab_size).eval()
    export_huggingface(model, tokenizer, tmp_path / "export")
    imported, tokenizer = import_huggingface(tmp_path / "export")
    encoder = ExampleEncoder.from_recipe(imported.recipe, tokenizer, None)
    (sequence,) = encoder.encode([Example(SENTENCE, SECOND)])
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert stock(SENTENCE, SECOND)["input_ids"] == sequence.token_ids


def test_a_discriminator_with_another_activation_loses_its_head(tmp_path: Path) -> None:
    """The stock head has the activation of the blocks, ours GELU."""
    model, tokenizer = build_model("electra", "encoder.feed_forward.kind=relu")
    export = export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    assert not export.architecture.startswith("Electra")
    assert "replaced-token" in export.dropped_objectives


REFUSED = {
    "bert encoder.positions={kind: rotary}": "encoder.positions.kind is rotary (Bert: learned)",
    "bert encoder.positions={kind: sinusoidal}": "encoder.positions.kind is sinusoidal",
    "bert encoder.norm.kind=rmsnorm": "encoder.norm.kind is rmsnorm (Bert: layernorm)",
    "modern encoder.embeddings.scaled=true": "embeddings.scaled is true (ModernBert: false)",
    "longformer encoder.visibility.rules=[causal, {kind: global}]": "is another rule",
    "longformer encoder.visibility.rules=[{kind: windows, sizes: [3], dilations: [2]}, global]": (
        "encoder.visibility is dilated (Longformer: windows without gaps"
    ),
    "longformer encoder.visibility.rules=[{kind: windows, sizes: [1, 2]}, global]": (
        "encoder.visibility has a window of 1 (Longformer: at least 2"
    ),
    "longformer encoder.visibility.rules=[{kind: window, size: 2}, {kind: global, block: 2}]": (
        "encoder.visibility counts global positions in blocks (Longformer: tokens)"
    ),
    "bert encoder.norm.placement=pre": "encoder.norm.placement is pre (Bert: post)",
    "bert encoder.norm.gain=false": "encoder.norm.gain is false (Bert: true)",
    "bert encoder.mixer.gate=gelu": "encoder.mixer.gate is gelu (Bert: none)",
    "bert encoder.residual.kind=weighted": "encoder.residual.kind is weighted (Bert: plain)",
    "bert encoder.residual={kind: plain, start: 1}": "encoder.residual.start is 1 (Bert: 0)",
    "bert encoder.pruned_sizes={heads: [2, 1]}": "encoder.pruned_sizes is stated (Bert: none)",
    "t5 decoder.mixer={kind: attention, heads: 4}": "decoder.mixer is stated (T5: none)",
    "bert encoder.depth.order=sff": "encoder.depth.order is sff (Bert: sf)",
    "bert output.norm.kind=rmsnorm": "output.norm is",
    "bert encoder.depth.every=2": "encoder.depth.every is 2 (Bert: 1)",
    "mobilebert encoder.depth.order=sff": "encoder.depth.order is sff (MobileBert: sffff)",
    "mobilebert encoder.bottleneck=null": "encoder.bottleneck is null (MobileBert",
    "mobilebert encoder.bottleneck.shared=false": "encoder.bottleneck.shared is false (MobileBert",
    "bert encoder.depth={kind: sublayers, order: sffs}": "encoder.depth.kind is sublayers",
    "bert encoder.visibility={kind: causal}": "encoder.visibility.kind is causal",
    "bert output.activation=silu": "output.activation is silu (Bert: gelu or gelu-tanh or relu)",
    "bert output.transform=false": "output.transform is false (Bert: true)",
    "modern encoder.feed_forward.kind=gelu": "kind is gelu (ModernBert: geglu or swiglu)",
    "modern encoder.value_embeddings={tables: 1}": "value_embeddings is stated (ModernBert: none)",
    "modern encoder.depth={kind: loop}": "encoder.depth.kind is loop (ModernBert: stack)",
    "modern encoder.norm.skip_first=false": "encoder.norm.skip_first is false (ModernBert: true)",
    "modern encoder.embeddings.segments=2": "encoder.embeddings.segments is 2 (ModernBert: 0)",
    "gpt-2 encoder.residual={kind: reversible}": "encoder.residual.kind is reversible (GPT2: plain",
    "modern objectives.masked.shift=1": "objectives.masked.shift ends as 1",
    "modern objectives={masked: null, causal: {}}": "objectives.causal ends the training",
}


@pytest.mark.parametrize("system", NO_STOCK_CLASS)
def test_systems_without_a_stock_class_are_refused(system: str, tmp_path: Path) -> None:
    model, tokenizer = build_model(system)
    with pytest.raises(UserError, match="no stock class computes"):
        export_huggingface(model, tokenizer, tmp_path / "export")


@pytest.mark.parametrize("change", REFUSED)
def test_refusals_name_the_axis(change: str, tmp_path: Path) -> None:
    model, tokenizer = build_model(*change.split(" ", 1))
    with pytest.raises(UserError, match=re.escape(REFUSED[change])):
        export_huggingface(model, tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_another_visibility_than_bigbirds_is_refused(tmp_path: Path) -> None:
    model, tokenizer = build_model("bigbird", "encoder.visibility.rules=[{kind: random-blocks}]")
    with pytest.raises(UserError, match="differs from the recipe bigbird"):
        export_huggingface(model, tokenizer, tmp_path / "export", model_type="big_bird")


def test_all_mismatches_are_reported(tmp_path: Path) -> None:
    model, tokenizer = build_model(
        "bert", "encoder.positions={kind: none}", "encoder.norm.kind=rmsnorm"
    )
    with pytest.raises(UserError, match=r"positions\.kind is none .*; .*norm\.kind is rmsnorm"):
        export_huggingface(model, tokenizer, tmp_path / "export")


def test_an_export_that_differs_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = build_model("bert")
    monkeypatch.setattr(parity, "OUTPUT_TOLERANCE", 0.0)
    with pytest.raises(UserError, match="differs from the model"):
        export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    assert not (tmp_path / "export").exists()


def test_verification_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    model, tokenizer = build_model("bert")
    with pytest.raises(MissingExtra, match=r"bertwright\[huggingface\]"):
        export_huggingface(model, tokenizer, tmp_path / "export", verify=True)


def test_an_existing_folder_is_not_changed(tmp_path: Path) -> None:
    model, tokenizer = build_model("bert")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        export_huggingface(model, tokenizer, tmp_path)


def test_an_export_does_not_change_the_weights(tmp_path: Path) -> None:
    model, tokenizer = build_model("roberta")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_wordpiece_tokenizer_becomes_berts(tmp_path: Path) -> None:
    model, tokenizer = build_model("bert")
    export_huggingface(model, tokenizer, tmp_path / "export")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert type(stock).__name__ == "BertTokenizer"
    encoding = stock(SENTENCE, SECOND)
    first, second = tokenizer.encode(SENTENCE), tokenizer.encode(SECOND)
    special = tokenizer.special_tokens
    assert encoding["input_ids"] == [special.start, *first, special.end, *second, special.end]
    assert encoding["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert stock.model_max_length == model.encoder.max_length
    assert stock.mask_token_id == special.mask
    lines = (tmp_path / "export" / "vocab.txt").read_text().splitlines()
    assert [tokenizer.token_to_id(line) for line in lines] == list(range(tokenizer.vocab_size))


@pytest.mark.parametrize("system", ["modern", "roberta"])
def test_a_model_without_segments_gets_no_segment_ids(system: str, tmp_path: Path) -> None:
    model, tokenizer = build_model(system)
    export_huggingface(model, tokenizer, tmp_path / "export")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    encoding = stock(SENTENCE, SECOND)
    assert "token_type_ids" not in encoding
    assert [
        token_id
        for token_id in encoding["input_ids"]
        if token_id not in tokenizer.special_tokens.all
    ] == [
        token_id
        for token_id in tokenizer.encode(SENTENCE) + tokenizer.encode(SECOND)
        if token_id not in tokenizer.special_tokens.all
    ]
    config = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_a_tokenizer_without_special_tokens_gets_them(tmp_path: Path) -> None:
    model, tokenizer = build_model("bert")
    tokenizer.backend.post_processor = processors.ByteLevel()
    bare = Tokenizer(tokenizer.backend)
    export_huggingface(model, bare, tmp_path / "export", verify=True)
    assert import_huggingface(tmp_path / "export")[1].encode(SENTENCE) == bare.encode(SENTENCE)


def test_the_model_card_has_an_example(tmp_path: Path) -> None:
    export_huggingface(*build_model("bert"), tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card
    assert "This is a [MASK]." in card
    assert "the class needs" not in card
    export_huggingface(*build_model("longformer"), tmp_path / "long")
    assert "global_attention_mask" in (tmp_path / "long" / "README.md").read_text()


@pytest.mark.parametrize("last", [0, 2])
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("positions", [(), (5,), (4, 6)])
@pytest.mark.parametrize("segment", [None, 0, 1])
def test_the_card_lists_all_global_positions(
    first: int, last: int, positions: tuple[int, ...], segment: int | None
) -> None:
    global_rule = GlobalVisibility(first=first, last=last, positions=positions, segment=segment)
    note = FAMILIES["longformer"].usage_note(WindowVisibility(size=2) | global_rule)
    for end, count in (("first", first), ("last", last)):
        tokens = "token" if count == 1 else f"{count} tokens"
        assert (f"the {end} {tokens} of each sequence" in note) == (count > 0)
    assert re.findall(r"position (\d+)", note) == [str(position) for position in positions]
    assert ("text" in note) == (segment is not None)
    assert bool(note) == any((first, last, positions, segment is not None))


@pytest.mark.parametrize("system", ["bert", "gpt-2", "electra", "t5", "bart"])
def test_the_example_of_the_card_runs(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_huggingface(*build_model(system), tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    exec(code.replace("this folder", str(tmp_path / "export")), {})
    assert capsys.readouterr().out


def test_legacy_tokenizer_files_of_bert(tmp_path: Path) -> None:
    folder = saved(stock_model("BertModel"), tmp_path / "stock")
    _, expected = import_huggingface(folder)
    vocabulary = [expected.id_to_token(index) for index in range(expected.vocab_size)]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    _, actual = import_huggingface(folder)
    assert actual.vocab_size == expected.vocab_size
    assert actual.special_tokens == expected.special_tokens
    assert actual.encode(SENTENCE) == expected.encode(SENTENCE)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert import_huggingface(folder)[1].encode("SHIP") == [actual.special_tokens.unknown]


def test_legacy_tokenizer_files_of_roberta(tmp_path: Path) -> None:
    folder = saved(stock_model("RobertaModel"), tmp_path / "stock")
    _, expected = import_huggingface(folder)
    expected.backend.model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    _, actual = import_huggingface(folder)
    assert actual.kind == "byte-bpe"
    assert actual.special_tokens == expected.special_tokens
    assert actual.encode(SENTENCE) == expected.encode(SENTENCE)


def test_a_unigram_tokenizer_is_exported(tmp_path: Path) -> None:
    tokens = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    tokens += [("▁", -1.0), *((c, -2.0) for c in "abcdefghijklmnopqrstuvwxyz"), ("▁the", -1.5)]
    backend = Backend(models.Unigram([*tokens, ("<mask>", 0.0)], unk_id=3))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = Tokenizer(backend)
    model = Model.build(toy("roberta"), tokenizer.vocab_size)
    export = export_huggingface(model.eval(), tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "RobertaForMaskedLM"
    assert import_huggingface(tmp_path / "export")[0].recipe.text.tokenizer.lowercase


UNUSUAL_TEXTS = [
    "",
    "  two  spaces\tand\na line ",
    "Ünïcödé é ﬁ ½",
    "東京 is 🙂🙂",
    "it's [MASK] <mask>!",
    "a" * 120,
]


@pytest.mark.parametrize(
    ("kind", "lowercase"),
    [("wordpiece", True), ("wordpiece", False), ("byte-bpe", False), ("unigram", True)],
)
def test_a_trained_tokenizer_gives_the_same_tokens(
    kind: str, lowercase: bool, tmp_path: Path
) -> None:
    text = "The ships went down to the sea; no one saw them again. 東京 Ünïcödé it's! " * 3
    config = TokenizerConfig.parse({"kind": kind, "vocab_size": 300, "lowercase": lowercase})
    tokenizer = train_tokenizer([text], config)
    model = Model.build(
        toy("bert" if kind == "wordpiece" else "roberta"), tokenizer.vocab_size
    ).eval()
    export_huggingface(model, tokenizer, tmp_path / "export", verify=True)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    for sentence in [text, *UNUSUAL_TEXTS]:
        ids = stock(sentence, add_special_tokens=False)["input_ids"]
        assert ids == tokenizer.encode(sentence), sentence
    assert import_huggingface(tmp_path / "export")[1].hash == tokenizer.hash
