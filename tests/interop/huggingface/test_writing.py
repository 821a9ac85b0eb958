"""What an exported folder holds, and what is not exported."""

import json
import re
import sys
from pathlib import Path

import pytest
import torch
import transformers
from stock import SMALL, TOKENIZERS, randomise, saved, stock_model
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, processors

from bertwright.encoder.visibility import Global, Window
from bertwright.errors import MissingExtra, UserError
from bertwright.interop.huggingface import export_folder, import_folder, verification
from bertwright.interop.huggingface.families import FAMILIES
from bertwright.model import Model
from bertwright.recipes.loading import systems
from bertwright.tasks.encoding import RowMaker
from bertwright.tasks.formats.examples import Example
from bertwright.text.tokenizers import Tokenizer, TokenizerChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy

SENTENCE, SECOND = "The ships, three of them: SHIPS!", "Zwölf 东京"


def made(system: str, *overrides: str) -> tuple[Model, Tokenizer]:
    """A random model of a recipe."""
    tokenizer = Tokenizer(
        TOKENIZERS["Roberta" if system in ("roberta", "longformer") else "Bert"]()
    )
    model = Model.build(toy(system, *overrides), tokenizer.size).eval()
    randomise(model, SMALL if system == "mobilebert" else 0.2)
    return model, tokenizer


NO_STOCK_CLASS = [
    "awd-lstm",
    "bilstm-student",
    "elmo",
    "ernie-2",
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
    "transformer-xl",
    "transformer",
    "universal-transformer",
    "xlm-e",
]


@pytest.mark.parametrize("system", sorted({*systems()} - {*NO_STOCK_CLASS}))
def test_every_system_is_exported_and_verified(system: str, tmp_path: Path) -> None:
    model, tokenizer = made(system)
    export = export_folder(model, tokenizer, tmp_path / "export", verify=True)
    assert export.max_difference is not None
    assert export.max_difference < 1e-5
    files = {file.name for file in (tmp_path / "export").iterdir()}
    expected = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert files == expected | {"README.md"} | (
        {"vocab.txt"} if tokenizer.kind == "wordpiece" else set()
    )


@pytest.mark.parametrize("system", ["albert", "bigbird", "roberta", "bert"])
@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_a_pair_is_framed_as_the_model_was_trained(system: str, kind: str, tmp_path: Path) -> None:
    choice = TokenizerChoice.choose({"kind": kind, "size": 120})
    tokenizer = train_tokenizer([f"{SENTENCE} {SECOND}"] * 9, choice)
    model = Model.build(toy(system), tokenizer.size).eval()
    export_folder(model, tokenizer, tmp_path / "export")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    maker = RowMaker.of(model.recipe, tokenizer, None)
    (row,) = maker.rows([Example(SENTENCE, SECOND)])
    found = stock(SENTENCE, SECOND)
    assert found["input_ids"] == row.pieces
    if row.segments is not None:
        assert found["token_type_ids"] == row.segments


def test_a_discriminator_with_another_activation_goes_without_its_head(tmp_path: Path) -> None:
    """The stock head has the activation of the blocks, ours is GELU."""
    model, tokenizer = made("electra", "encoder.feed_forward.kind=relu")
    export = export_folder(model, tokenizer, tmp_path / "export", verify=True)
    assert not export.architecture.startswith("Electra")
    assert "replaced-token" in export.left_behind


REFUSED = {
    "bert encoder.positions={kind: rotary}": "encoder.positions.kind is rotary (Bert: learned)",
    "bert encoder.positions={kind: sinusoidal}": "encoder.positions.kind is sinusoidal",
    "bert encoder.norm.kind=rmsnorm": "encoder.norm.kind is rmsnorm (Bert: layernorm)",
    "modern encoder.embeddings.scaled=true": "embeddings.scaled is true (ModernBert: false)",
    "longformer encoder.visibility.rules=[causal, {kind: global}]": "not a window or global places",
    "longformer encoder.visibility.rules=[{kind: windows, sizes: [3], dilations: [2]}, global]": (
        "encoder.visibility is dilated (Longformer: windows without gaps"
    ),
    "longformer encoder.visibility.rules=[{kind: window, size: 2}, {kind: global, block: 2}]": (
        "encoder.visibility counts global places in blocks (Longformer: pieces)"
    ),
    "bert encoder.norm.placement=pre": "encoder.norm.placement is pre (Bert: post)",
    "bert encoder.norm.gain=false": "encoder.norm.gain is false (Bert: true)",
    "bert encoder.mixer.gate=gelu": "encoder.mixer.gate is gelu (Bert: none)",
    "bert encoder.residual.kind=weighted": "encoder.residual.kind is weighted (Bert: plain)",
    "bert encoder.residual={kind: plain, start: 1}": "encoder.residual.start is 1 (Bert: 0)",
    "bert encoder.cut={heads: [2, 1]}": "encoder.cut is stated (Bert: none)",
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
    "modern encoder.norm.skip_first=false": "encoder.norm.skip_first is false (ModernBert: true)",
    "modern encoder.embeddings.segments=2": "encoder.embeddings.segments is 2 (ModernBert: 0)",
    "gpt-2 encoder.residual={kind: reversible}": "encoder.residual.kind is reversible (GPT2: plain",
    "modern objectives.masked.shift=1": "objectives.masked.shift ends as 1",
    "modern objectives={masked: null, causal: {}}": "objectives.causal ends the training",
}


@pytest.mark.parametrize("system", NO_STOCK_CLASS)
def test_what_has_no_stock_class_is_refused(system: str, tmp_path: Path) -> None:
    model, tokenizer = made(system)
    with pytest.raises(UserError, match="no stock class computes"):
        export_folder(model, tokenizer, tmp_path / "export")


@pytest.mark.parametrize("change", REFUSED)
def test_what_no_stock_class_computes_is_refused_by_its_axis(change: str, tmp_path: Path) -> None:
    model, tokenizer = made(*change.split(" ", 1))
    with pytest.raises(UserError, match=re.escape(REFUSED[change])):
        export_folder(model, tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_another_rule_than_bigbirds_is_refused(tmp_path: Path) -> None:
    model, tokenizer = made("bigbird", "encoder.visibility.rules=[{kind: random-blocks}]")
    with pytest.raises(UserError, match="another rule than that of the recipe bigbird"):
        export_folder(model, tokenizer, tmp_path / "export", family_name="big_bird")


def test_every_reason_is_given(tmp_path: Path) -> None:
    model, tokenizer = made("bert", "encoder.positions={kind: none}", "encoder.norm.kind=rmsnorm")
    with pytest.raises(UserError, match=r"positions\.kind is none .*; .*norm\.kind is rmsnorm"):
        export_folder(model, tokenizer, tmp_path / "export")


def test_a_folder_that_computes_something_else_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = made("bert")
    monkeypatch.setattr(verification, "TOLERANCE", 0.0)
    with pytest.raises(UserError, match="differs from the model"):
        export_folder(model, tokenizer, tmp_path / "export", verify=True)
    assert not (tmp_path / "export").exists()


def test_verifying_needs_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    model, tokenizer = made("bert")
    with pytest.raises(MissingExtra, match=r"bertwright\[huggingface\]"):
        export_folder(model, tokenizer, tmp_path / "export", verify=True)


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    model, tokenizer = made("bert")
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="already exists"):
        export_folder(model, tokenizer, tmp_path)


def test_the_weights_of_a_trained_model_are_not_touched(tmp_path: Path) -> None:
    model, tokenizer = made("roberta")
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    export_folder(model, tokenizer, tmp_path / "export", verify=True)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_wordpiece_tokenizer_is_read_as_berts(tmp_path: Path) -> None:
    model, tokenizer = made("bert")
    export_folder(model, tokenizer, tmp_path / "export")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert type(stock).__name__ == "BertTokenizer"
    found = stock(SENTENCE, SECOND)
    first, second = tokenizer.encode(SENTENCE), tokenizer.encode(SECOND)
    special = tokenizer.specials
    assert found["input_ids"] == [special.start, *first, special.end, *second, special.end]
    assert found["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert stock.model_max_length == model.encoder.longest
    assert stock.mask_token_id == special.mask
    lines = (tmp_path / "export" / "vocab.txt").read_text().splitlines()
    assert [tokenizer.id(line) for line in lines] == list(range(tokenizer.size))


@pytest.mark.parametrize("system", ["modern", "roberta"])
def test_a_model_without_segments_is_given_none(system: str, tmp_path: Path) -> None:
    model, tokenizer = made(system)
    export_folder(model, tokenizer, tmp_path / "export")
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    found = stock(SENTENCE, SECOND)
    assert "token_type_ids" not in found
    assert [i for i in found["input_ids"] if i not in tokenizer.specials.all] == [
        i
        for i in tokenizer.encode(SENTENCE) + tokenizer.encode(SECOND)
        if i not in tokenizer.specials.all
    ]
    config = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_a_tokenizer_that_frames_no_text_is_framed(tmp_path: Path) -> None:
    model, tokenizer = made("bert")
    tokenizer.backend.post_processor = processors.ByteLevel()
    bare = Tokenizer(tokenizer.backend)
    export_folder(model, bare, tmp_path / "export", verify=True)
    assert import_folder(tmp_path / "export")[1].encode(SENTENCE) == bare.encode(SENTENCE)


def test_the_model_card_says_how_it_is_used(tmp_path: Path) -> None:
    export_folder(*made("bert"), tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card
    assert "This is a [MASK]." in card
    assert "the class needs" not in card
    export_folder(*made("longformer"), tmp_path / "long")
    assert "global_attention_mask" in (tmp_path / "long" / "README.md").read_text()


@pytest.mark.parametrize("last", [0, 2])
@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("positions", [(), (5,), (4, 6)])
@pytest.mark.parametrize("segment", [None, 0, 1])
def test_the_card_says_of_all_global_places_which_they_are(
    first: int, last: int, positions: tuple[int, ...], segment: int | None
) -> None:
    wide = Global(first=first, last=last, positions=positions, segment=segment)
    told = FAMILIES["longformer"].told(Window(size=2) | wide)
    for end, number in (("first", first), ("last", last)):
        pieces = "piece" if number == 1 else f"{number} pieces"
        assert (f"the {end} {pieces} of each row" in told) == (number > 0)
    assert re.findall(r"place (\d+)", told) == [str(position) for position in positions]
    assert ("text" in told) == (segment is not None)
    assert bool(told) == any((first, last, positions, segment is not None))


@pytest.mark.parametrize("system", ["bert", "gpt-2", "electra", "t5", "bart"])
def test_what_the_card_says_runs(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_folder(*made(system), tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    code = card.partition("```python\n")[2].partition("```")[0]
    exec(code.replace("this folder", str(tmp_path / "export")), {})
    assert capsys.readouterr().out


def test_old_tokenizer_files_of_bert(tmp_path: Path) -> None:
    folder = saved(stock_model("BertModel"), tmp_path / "stock")
    _, expected = import_folder(folder)
    vocabulary = [expected.piece(index) for index in range(expected.size)]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    _, found = import_folder(folder)
    assert found.size == expected.size
    assert found.specials == expected.specials
    assert found.encode(SENTENCE) == expected.encode(SENTENCE)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    assert import_folder(folder)[1].encode("SHIP") == [found.specials.unknown]


def test_old_tokenizer_files_of_roberta(tmp_path: Path) -> None:
    folder = saved(stock_model("RobertaModel"), tmp_path / "stock")
    _, expected = import_folder(folder)
    expected.backend.model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    _, found = import_folder(folder)
    assert found.kind == "byte-bpe"
    assert found.specials == expected.specials
    assert found.encode(SENTENCE) == expected.encode(SENTENCE)


def test_a_unigram_tokenizer_is_exported(tmp_path: Path) -> None:
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [("▁", -1.0), *((c, -2.0) for c in "abcdefghijklmnopqrstuvwxyz"), ("▁the", -1.5)]
    backend = Backend(models.Unigram([*pieces, ("<mask>", 0.0)], unk_id=3))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = Tokenizer(backend)
    model = Model.build(toy("roberta"), tokenizer.size)
    export = export_folder(model.eval(), tokenizer, tmp_path / "export", verify=True)
    assert export.architecture == "RobertaForMaskedLM"
    assert import_folder(tmp_path / "export")[0].recipe.text.tokenizer.lowercase


ODD = [
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
def test_a_trained_tokenizer_cuts_the_same_pieces(
    kind: str, lowercase: bool, tmp_path: Path
) -> None:
    text = "The ships went down to the sea; nobody saw them again. 東京 Ünïcödé it's! " * 3
    choice = TokenizerChoice.choose({"kind": kind, "size": 300, "lowercase": lowercase})
    tokenizer = train_tokenizer([text], choice)
    model = Model.build(toy("bert" if kind == "wordpiece" else "roberta"), tokenizer.size).eval()
    export_folder(model, tokenizer, tmp_path / "export", verify=True)
    stock = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    for sentence in [text, *ODD]:
        ids = stock(sentence, add_special_tokens=False)["input_ids"]
        assert ids == tokenizer.encode(sentence), sentence
    assert import_folder(tmp_path / "export")[1].hash == tokenizer.hash
