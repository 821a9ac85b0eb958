"""A name on the Hub is taken wherever a model folder is, and exports are pushed with their card."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import bertwright as bw
from bertwright.core.errors import UserError
from bertwright.data.hub.reference import HubReference
from bertwright.data.tokenization.tokenizer import Tokenizer, WordPieceConfig
from bertwright.interop.huggingface.exporter import export_huggingface
from bertwright.interop.imported_folder import bertwright_folder
from bertwright.interop.published_card import add_measurements
from bertwright.models import Model
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.tables import Columns
from bertwright.timing.artefacts import Artefact
from commands import invoke, invoke_json
from hub_server import TOKEN, Hub, hub, hub_server
from small_tasks import ENGLISH, classes
from toy_recipes import toy

__all__ = ["hub", "hub_server"]

# The client uploads large files in a deprecated way.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

TEXTS = ["The red bird", "The old tree is green"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of a model, of its export to Hugging Face, and of a fine-tuned model."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = bw.train_tokenizer([ENGLISH], WordPieceConfig(vocab_size=100))
    model = TextModel(Model.build(toy("bert"), tokenizer.vocab_size), tokenizer)
    model.save(folder / "model")
    export_huggingface(model.model, tokenizer, folder / "stock")
    task = table_task("colours", Columns())
    bw.finetune(model, task, train=classes(), output=folder / "tuned", epochs=1, compile=False)
    (folder / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    (folder / "train.tsv").write_text("text\tlabel\nred\ta\nold\tb\n")
    pair = {"sentence_good": "The red bird", "sentence_bad": "The bird red"}
    (folder / "pairs.jsonl").write_text(json.dumps(pair) + "\n")
    return folder


@pytest.mark.parametrize("name", ["model", "stock", "tuned"])
def test_a_model_by_name_is_the_model_of_the_folder(hub: Hub, folders: Path, name: str) -> None:
    hub.add("me/model", folders / name)
    local, named = bw.load(folders / name, "float32"), bw.load("me/model", "float32")
    assert type(named) is type(local)
    np.testing.assert_array_equal(named.embed(TEXTS), local.embed(TEXTS))
    assert bw.Tokenizer.load("me/model").vocab_size == local.tokenizer.vocab_size


def test_a_model_by_name_is_evaluated_with_its_baselines(
    hub: Hub, folders: Path, tmp_path: Path
) -> None:
    hub.add("me/model", folders / "tuned")
    data = tmp_path / "dev.tsv"
    data.write_text("text\tlabel\nThe red bird is old\told\nThe house is new\tnew\n")
    local, named = (
        invoke_json("evaluate", model, "--data", data) for model in (folders / "tuned", "me/model")
    )
    assert local["baselines"]
    assert named == local


def test_a_stock_model_becomes_a_folder_once(
    hub: Hub, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = hub.add("me/stock", folders / "stock").refs["main"]
    folder = bertwright_folder(Path("me/stock"))
    model, tokenizer = load_model(folder)
    assert model.recipe.source == f"imported from me/stock@{commit}"
    assert Tokenizer.load(folder).hash == tokenizer.hash
    monkeypatch.setattr("bertwright.interop.huggingface.importer.load_huggingface", None)
    assert bertwright_folder(Path("me/stock")) == folder
    hub.add("me/model", folders / "model")
    load_model(bertwright_folder(Path("me/model")))
    assert bertwright_folder(folders / "stock") == folders / "stock"


COMMANDS = """
analyse me/none --data texts.txt -o x
average me/none me/none -o x
compress distil me/none --train train.tsv -o x
compress distil tuned --train train.tsv --student me/none -o x
compress fit me/none --train train.tsv --goal size<=25MB -o x
compress prune-layers me/none --layers 1 -o x
cross-validate me/none --train train.tsv -o x
embed me/none texts.txt
evaluate me/none --data train.tsv
evaluate tuned --ensemble me/none --data train.tsv
export me/none -o x
export me/none --to onnx -o x
export me/none --to sentence-transformers -o x
export me/none --to torch-export -o x
fill-mask me/none red
finetune me/none --train train.tsv -o x
generate me/none red
glue me/none --data . -o x
import me/none -o x
index texts.txt --model me/none -o x
learning-curve me/none --train train.tsv -o x
minimal-pairs me/none pairs.jsonl
neighbours me/none [red] --text texts.txt
neighbours model [red] --text texts.txt --static me/none
pareto me/none tuned --data train.tsv
pareto me/none@int8 tuned --data train.tsv
predict me/none texts.txt
prepare texts.txt --tokenizer me/none -o x
pretrain --from me/none --data x -o x
sensitivity me/none --train train.tsv
serve me/none --port 0
static me/none texts.txt -o x
trace --text red --model me/none
trace --text red --tokenizer me/none
tune me/none --train train.tsv --grid bert -o x
view me/none red
vocab show me/none
vocab extend me/none --text texts.txt --add 1 -o x
vocab prune me/none --text texts.txt -o x
"""


@pytest.mark.parametrize("command", COMMANDS.strip().splitlines())
def test_every_command_asks_the_hub_for_a_name(
    hub: Hub, folders: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(folders)
    with pytest.raises(UserError, match="me/none: there is neither a folder nor a model of that"):
        invoke(*command.split())
    assert not (folders / "x").exists()


def test_a_model_by_name_is_not_calibrated(hub: Hub, folders: Path) -> None:
    hub.add("me/tuned", folders / "tuned")
    with pytest.raises(UserError, match="me/tuned is no folder, and calibrate changes the folder"):
        invoke("calibrate", "me/tuned", "--data", folders / "train.tsv")
    assert not hub.requested("me/tuned")


def test_commands_use_a_model_by_name(
    hub: Hub, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("me/stock", folders / "stock")
    hub.add("me/tuned", folders / "tuned")
    monkeypatch.chdir(tmp_path)
    invoke_json("import", "me/stock", "-o", "imported")
    assert isinstance(bw.load("imported"), TextModel)
    predictions = [
        invoke("predict", model, folders / "texts.txt").stdout
        for model in ("me/tuned", folders / "tuned")
    ]
    assert predictions[0] == predictions[1]
    invoke("predict", "me/tuned", folders / "texts.txt", "-o", "predictions.jsonl")
    assert Artefact.parse("me/tuned@v1").folder == Path("me/tuned@v1")
    assert Artefact.parse("me/tuned@int8").precision == "int8"
    assert Artefact.parse("me/tuned").num_bytes > 1000


def test_an_export_is_pushed_with_what_was_measured(
    hub: Hub, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.chdir(tmp_path)
    report = invoke_json("export", folders / "tuned", "-o", "export", "--push", "me/colours")
    assert report["pushed"].startswith(f"{hub.url}/me/colours/commit/")
    assert report["max_difference"] < 1e-4, "the outputs are compared before a push"
    repository = hub.repositories["models/me/colours"]
    card = repository.commits[repository.refs["main"]]["README.md"].decode()
    record = json.loads((folders / "tuned" / "training.json").read_text())
    score = f"{record['metrics']['accuracy']:.4g}"
    assert re.search(rf"\| accuracy of colours \| {score} \| .+ to .+ \|", card)
    assert "| accuracy of colours, majority class |" in card
    assert "| largest difference of the outputs |" in card
    assert f"The scores are of {record['held_out_examples']} held-out examples." in card
    assert 'pipeline("text-classification", "me/colours")' in card
    loaded = bw.load("me/colours", "float32")
    assert isinstance(loaded, FineTunedModel)
    local = bw.load(folders / "tuned", "float32")
    assert isinstance(local, FineTunedModel)
    assert [p.value for p in loaded.predict(TEXTS)] == [p.value for p in local.predict(TEXTS)]


def test_nothing_is_pushed_if_the_outputs_differ(
    hub: Hub, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(*_: object) -> float:
        raise UserError("the outputs differ by 1")

    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr("bertwright.interop.huggingface.exporter.max_stock_difference", differ)
    with pytest.raises(UserError, match="the outputs differ by 1"):
        invoke("export", folders / "model", "-o", tmp_path / "export", "--push", "me/model")
    assert not hub.repositories
    assert not (tmp_path / "export").exists()


def test_private_is_for_a_push(hub: Hub, folders: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this is for --push: leave --private out"):
        invoke("export", folders / "model", "-o", tmp_path / "export", "--private")
    with pytest.raises(UserError, match="no token"):
        invoke("export", folders / "model", "-o", tmp_path / "export", "--push", "me/model")
    assert not (tmp_path / "export").exists()


def test_a_card_states_the_losses_of_a_pre_trained_model(folders: Path, tmp_path: Path) -> None:
    record = {
        "steps": 12_000,
        "data": "/home/me/secret",
        "result": {"masked_loss": 1.5, "bits_per_byte": 2.25},
        "versions": {"torch": "2.13"},
    }
    source = tmp_path / "source"
    source.mkdir()
    (source / "training.json").write_text(json.dumps(record))
    card = tmp_path / "README.md"
    card.write_text("# A card\n")
    add_measurements(tmp_path, source)
    text = card.read_text()
    assert text.startswith("# A card\n\n## Measured\n")
    assert "| masked loss, held-out text | 1.5 |" in text
    assert "| training: steps | 12,000 |" in text
    assert "secret" not in text, "paths of this machine are not published"


def test_a_card_without_measurements_stays(folders: Path, tmp_path: Path) -> None:
    card = tmp_path / "README.md"
    card.write_text("# A card\n")
    add_measurements(tmp_path, folders / "stock")
    assert card.read_text() == "# A card\n"
    assert HubReference.parse(tmp_path) is None
