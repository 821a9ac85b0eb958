"""Every way to adapt from a shell, and what is wrong with a file in one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from bertwright.cli import predict
from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.model import Model
from bertwright.model.text_model import TextModel
from bertwright.text.tokenizers import WordPieceChoice
from bertwright.text.vocabularies import train_tokenizer
from recipes_at_toy_size import toy
from small_tasks import (
    ENGLISH,
    TEXTS,
    assert_same_predictions,
    classes,
    partners,
    several_labels,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, and the files of several tasks."""
    folder = tmp_path_factory.mktemp("adapting")
    tokenizer = train_tokenizer([ENGLISH], WordPieceChoice(size=100))
    TextModel(Model.build(toy("bert"), tokenizer.size), tokenizer).save(folder / "model")
    rows = "".join(f"{e.first}\t{e.label}\n" for e in classes())
    pairs = "".join(f"{e.first}\t{e.second}\t{e.others[0]}\n" for e in partners())
    near = "".join(f"{e.first}\t{e.second}\t{e.others[0]}\t5\n" for e in partners())
    (folder / "near.tsv").write_text(f"text\tpair\tother\tlabel\n{near}")
    (folder / "one").mkdir()
    (folder / "one" / "train.tsv").write_text(f"text\tlabel\n{rows}")
    labels = "".join(
        json.dumps({"text": e.first, "label": e.label}) + "\n" for e in several_labels()
    )
    binary = "".join(f"{n}\t{e.first}\t{'01'[e.label == 'old']}\n" for n, e in enumerate(classes()))
    (folder / "train.tsv").write_text(f"text\tlabel\n{rows}")
    (folder / "pairs.tsv").write_text(f"text\tpair\tother\n{pairs}")
    (folder / "labels.jsonl").write_text(labels)
    for name, header in (("SST-2", "index\tsentence\tlabel\n"),):
        (folder / "glue" / name).mkdir(parents=True)
        for part in ("train", "dev"):
            (folder / "glue" / name / f"{part}.tsv").write_text(header + binary)
    cola = "".join(f"x\t{'01'[e.label == 'old']}\t\t{e.first}\n" for e in classes())
    (folder / "glue" / "CoLA").mkdir()
    for part in ("train", "dev"):
        (folder / "glue" / "CoLA" / f"{part}.tsv").write_text(cola)
    return folder


def invoke(*words: Any, given: str | None = None) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def printed(*words: Any) -> Any:
    return json.loads(invoke(*words, "--json").stdout)


@pytest.fixture
def tuned(folder: Path, tmp_path: Path) -> Path:
    out = tmp_path / "tuned"
    invoke("finetune", folder / "model", "--train", folder / "train.tsv", "-o", out, "epochs=1")
    return out


def test_a_search_keeps_the_best_and_tells_all(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    found = printed(
        "finetune", folder / "model", "--train", folder / "train.tsv", "-o", out, "--search", 2,
        "epochs=1",
    )  # fmt: skip
    assert len(found["trials"]) == 2
    assert json.loads((out / "search.json").read_text())["chosen"] == found["chosen"]
    assert (out / "model.safetensors").is_file()


def test_folds_and_sizes_write_what_they_print(folder: Path, tmp_path: Path) -> None:
    given = ("finetune", folder / "model", "--train", folder / "train.tsv", "epochs=1")
    folds = printed(*given, "--folds", 2, "-o", tmp_path / "folds")
    assert json.loads((tmp_path / "folds" / "folds.json").read_text()) == folds
    sizes = printed(*given, "--sizes", "8,all", "-o", tmp_path / "sizes")
    assert json.loads((tmp_path / "sizes" / "sizes.json").read_text()) == sizes
    assert (tmp_path / "sizes" / "sizes.png").is_file()


def test_glue_and_several_tasks_have_folders(folder: Path, tmp_path: Path) -> None:
    found = printed(
        "finetune", folder / "model", "--task", "glue", "--data", folder / "glue", "-o",
        tmp_path / "glue", "epochs=1",
    )  # fmt: skip
    assert set(found["tasks"]) == {"cola", "sst-2"}
    found = printed(
        "finetune", folder / "model", "--task", "cola,glue/sst2", "--data", folder / "glue", "-o",
        tmp_path / "both", "epochs=1",
    )  # fmt: skip
    assert found["metric"] == "mean"
    assert (tmp_path / "both" / "sst-2" / "model.safetensors").is_file()


def test_answers_of_other_kinds(folder: Path, tmp_path: Path) -> None:
    found = printed(
        "finetune", folder / "model", "--train", folder / "labels.jsonl", "--answer", "labels",
        "-o", tmp_path / "labels", "epochs=1", "answer.threshold=0.3",
    )  # fmt: skip
    assert found["metric"] == "micro-f1"
    found = printed(
        "finetune", folder / "model", "--task", "retrieval", "--train", folder / "pairs.tsv",
        "--other", "other", "-o", tmp_path / "near", "epochs=1", "answer.sharpness=0.1",
    )  # fmt: skip
    assert found["metric"] == "ndcg@10"


def test_labels_and_words_are_texts_whatever_yaml_makes_of_them(
    folder: Path, tmp_path: Path
) -> None:
    binary = "".join(f"{e.first}\t{'01'[e.label == 'old']}\n" for e in classes())
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{binary}")
    train = ("finetune", folder / "model", "--train", tmp_path / "train.tsv", "epochs=0")
    for number, weights in enumerate(("{0: 1, 1: 5}", '{"0": 1, "1": 5}')):
        printed(*train, "-o", tmp_path / str(number), f"answer.weights={weights}")
        task = json.loads((tmp_path / str(number) / "task.json").read_text())["task"]
        assert task["answer"]["weights"] == {"0": 1.0, "1": 5.0}
    named = binary.replace("\t0", "\tno").replace("\t1", "\tyes")
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{named}")
    words = ("answer.words.yes=old", "answer.words={no: new}", "answer.template='{text} is [MASK]'")
    printed(*train, "--answer", "cloze", "-o", tmp_path / "cloze", *words)
    answer = json.loads((tmp_path / "cloze" / "task.json").read_text())["task"]["answer"]
    assert (answer["words"], answer["template"]) == (
        {"yes": "old", "no": "new"}, "{text} is [MASK]"
    )  # fmt: skip
    with pytest.raises(UserError, match=r"answer\.words: 'yes' is no single piece"):
        invoke(*train, "--answer", "cloze", "-o", tmp_path / "x", "answer.words.no=yes")


def test_a_task_of_ones_own_is_one_file(folder: Path, tmp_path: Path) -> None:
    plugin = Path(__file__).parents[2] / "docs" / "examples" / "own_task.py"
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"{e.label}: {e.first}\n" for e in classes()))
    asked = ("finetune", folder / "model", "--plugin", plugin, "--task", "labelled-lines")
    found = printed(*asked, "--train", lines, "-o", tmp_path / "own", "epochs=1")
    assert (found["task"], found["metric"]) == ("labelled-lines", "macro-f1")
    scored = printed("evaluate", tmp_path / "own", "--data", lines, "--plugin", plugin)
    assert scored["task"] == "labelled-lines"
    lines.write_text("old The red bird\n")
    with pytest.raises(UserError, match=r"lines\.txt line 1: no colon"):
        invoke(*asked, "--train", lines, "-o", tmp_path / "other")


def predictions_of(text: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file."""
    return [json.loads(line) for line in text.splitlines()]


def interrupted(model: Path, texts: Path, out: Path, lines: str) -> Path:
    """What a run that ended after these lines has left of its predictions."""
    writer = predict.resumable(out, model, None)
    with pytest.raises(KeyboardInterrupt), writer.opened(resume=False) as opened:
        opened.write(lines)
        raise KeyboardInterrupt
    out.unlink(missing_ok=True)
    return writer.part


@pytest.mark.processor
def test_what_was_interrupted_is_gone_on_with(folder: Path, tuned: Path, tmp_path: Path) -> None:
    texts, out = tmp_path / "texts.txt", tmp_path / "said.jsonl"
    texts.write_text("\n".join(TEXTS) + "\n")
    invoke("predict", tuned, texts, "-o", out)
    whole = out.read_text()
    part = interrupted(tuned, texts, out, whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"was left by an interrupted run: say --resume"):
        invoke("predict", tuned, texts, "-o", out)
    invoke("predict", tuned, texts, "-o", out, "--resume")
    assert [json.loads(a)["text"] for a in out.read_text().splitlines()] == TEXTS
    assert not part.exists()
    assert_same_predictions(predictions_of(out.read_text()), predictions_of(whole))
    with pytest.raises(UserError, match="is whole: there is nothing to go on with"):
        invoke("predict", tuned, texts, "-o", out, "--resume")


def test_what_is_of_another_text_or_model_is_not_gone_on_with(
    folder: Path, tuned: Path, tmp_path: Path
) -> None:
    texts, others = tmp_path / "texts.txt", tmp_path / "others.txt"
    texts.write_text("\n".join(TEXTS) + "\n")
    others.write_text("\n".join([*TEXTS[:3], "something else", *TEXTS[4:]]) + "\n")
    short = tmp_path / "short.txt"
    short.write_text(TEXTS[0] + "\n")
    invoke("predict", tuned, texts, "-o", tmp_path / "whole.jsonl")
    whole = (tmp_path / "whole.jsonl").read_text()
    lines = "".join(whole.splitlines(keepends=True)[:8])
    part = interrupted(tuned, texts, tmp_path / "said.jsonl", lines)
    asked = ("-o", tmp_path / "said.jsonl", "--resume")
    for wrong, number in ((others, 4), (short, 2)):
        with pytest.raises(UserError, match=rf"jsonl\.part line {number} is of another text"):
            invoke("predict", tuned, wrong, *asked)
    another = tmp_path / "another"
    invoke(
        "finetune", folder / "model", "--train", folder / "train.tsv", "-o", another,
        "epochs=4", "rate=1e-2", "calibrate=false",
    )  # fmt: skip
    with pytest.raises(UserError, match=r"jsonl\.part was begun with another model"):
        invoke("predict", another, texts, *asked)
    with pytest.raises(UserError, match=r"jsonl\.part was begun with another precision"):
        invoke("predict", tuned, texts, *asked, "--precision", "bf16")
    assert len(part.read_text().splitlines()) == 8
    invoke("predict", tuned, texts, *asked)
    resumed = (tmp_path / "said.jsonl").read_text()
    assert_same_predictions(predictions_of(resumed), predictions_of(whole))


def test_objects_on_standard_input_are_not_read_as_texts(tuned: Path) -> None:
    with pytest.raises(UserError, match="standard input line 1 is a JSON object: say --jsonl"):
        CliRunner().invoke(
            app, ["predict", str(tuned)], input='{"text": "a bird"}\n', catch_exceptions=False
        )


def test_a_line_that_cannot_be_read_leaves_nothing(tuned: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a"}\n{"txt": "b"}\n')
    with pytest.raises(UserError, match=r"texts\.jsonl line 2: no column 'text'"):
        invoke("predict", tuned, texts, "-o", tmp_path / "said.jsonl")
    assert {file.name for file in tmp_path.iterdir()} == {"tuned", "texts.jsonl"}


WRONG = {
    "unseen": ("text\tlabel\na\told\nb\todd\n", r"dev\.tsv line 3: task train has no label 'odd'"),
    "empty": ("text\tlabel\n\told\n", r"dev\.tsv line 2, column 'text': the text is empty"),
    "column": ("txet\tlabel\na\told\n", r"dev\.tsv line 1: no column 'text': did you mean 'txet'"),
    "twice": ("text\tlabel\ttext\na\told\tb\n", r"dev\.tsv line 1: 2 columns are named 'text'"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_named_and_nothing_written(folder: Path, tmp_path: Path, case: str) -> None:
    content, message = WRONG[case]
    dev = tmp_path / "dev.tsv"
    dev.write_text(content)
    with pytest.raises(UserError, match=message) as caught:
        invoke(
            "finetune", folder / "model", "--train", folder / "train.tsv", "--dev", dev, "-o",
            tmp_path / "out",
        )  # fmt: skip
    assert "\n" not in str(caught.value)
    assert {file.name for file in tmp_path.iterdir()} == {"dev.tsv"}


def test_a_text_of_a_hundred_thousand_pieces_is_cut_and_said(folder: Path, tmp_path: Path) -> None:
    long = "red " * 100_000
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + f"{long}\told\n" + "a bird\tnew\n" * 8)
    words = ("finetune", folder / "model", "--train", tmp_path / "train.tsv", "length=32")
    said = invoke(*words, "-o", tmp_path / "out", "epochs=1").stderr
    assert "1 training example is longer than a row" in said
    assert f"{tmp_path}/train.tsv line 2" in said
    assert "answer.stride" in said
    rows = f"{'red ' * 40}\t{'red ' * 40}\told\n" + "a bird\tit\tnew\n" * 8
    (tmp_path / "train.tsv").write_text("text\tother\tlabel\n" + rows)
    # What has windows, and what cannot have any.
    for stated in ("answer.stride=4", "head.read=apart"):
        said = invoke(*words, "-o", tmp_path / stated, "--pair", "other", "epochs=0", stated).stderr
        assert "cut, this one first: raise length" in said
        assert "answer.stride" not in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--search", "3", "--folds", "3"), "three questions: ask one at a time"),
        (("--search", "brt"), "--search brt: say bert, roberta, electra, or a number"),
        (("--sizes", "a,b"), "--sizes a,b: write numbers with commas"),
        (("--answer", "nubmer"), "has no kind 'nubmer': did you mean 'number'"),
        (("answer.strid=3",), "answer: has no key 'strid': did you mean 'stride'"),
        (("adaptation=loar",), "adaptation: has no kind 'loar': did you mean 'lora'"),
        (("adaptation.rank=3",), "adaptation: needs a kind, one of: full"),
        (("adaptation.layer_decay=2",), "adaptation.layer_decay: must be 1 or less, not 2"),
        (("--epochs", "1", "epochs=2"), "epochs is stated twice: leave one out"),
        (("seed=1", "seed=2"), "seed is stated twice: leave one out"),
        (("rate=.inf",), "finetune: rate: must be a finite number"),
        (("--pair", "text"), "--pair text: that is the column of a text"),
        (("--label", "text"), "--label text: that is the column of a text"),
        (("--other", "label"), "--other is for --task similarity and retrieval"),
        (("--tags", "pos"), "--tags: no column 'pos'"),
        (("--sizes", "4,all", "seed=abc"), "finetune: seed: must be"),
        (("--folds", "2", "seed=abc"), "finetune: seed: must be"),
        (("head={kind: bilstm, depth: 0}",), "head.depth: must be 1 or more, not 0"),
        (
            ("adaptation={kind: lora, sublayers: []}",),
            "adaptation.sublayers: ",
        ),
        (("--answer", "span"), "--answer span is not for texts in columns: choose class"),
        (("answer.weights=all",), "answer: weights: must be 'balanced', not 'all'"),
        (
            ("--answer", "cloze", "answer.stride=8"),
            "answer: stride: a cloze is one row, which has one gap: leave it out",
        ),
        (
            ("--answer", "cloze", "answer.weights.odl=2"),
            "answer.weights: no label 'odl': did you mean 'old'",
        ),
        (("schedule=constant", "warmup=0.5"), "finetune: warmup and schedule both say how"),
        (("answer.stride=64", "length=64"), "answer.stride: 64 is no less than a row"),
        (("head.kind=bilstm",), "head.kind: bilstm reads the words of a row"),
        (("head.layers=9",), "head.layers: no layers '9'"),
    ],
)
def test_a_mistake_is_named(
    folder: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        invoke(
            "finetune", folder / "model", "--train", folder / "train.tsv", "-o", tmp_path / "x",
            *words,
        )  # fmt: skip
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "glue", "--data", "glue", "--text", "a"), "--task glue .*leave --text out"),
        (("--task", "glue", "--data", "glue", "--pair", "a"), "leave --pair out"),
        (("--task", "glue", "--data", "glue", "--label", "a"), "leave --label out"),
        (("--task", "glue", "--data", "glue", "--other", "a"), "leave --other out"),
        (("--task", "glue", "--data", "glue", "--answer", "number"), "leave --answer out"),
        (("--task", "glue", "--data", "glue", "--tags", "upos"), "leave --tags out"),
        (("--task", "glue", "--data", "glue", "answer.stride=8"), "leave answer.stride out"),
        (("--task", "cola,sst-2", "--data", "glue", "--train", "a"), "leave --train out"),
        (("--task", "cola,sst-2", "--data", "glue", "--dev", "a"), "leave --dev out"),
        (("--task", "rank", "--train", "pairs.tsv", "--other", "other"), "leave --other out"),
        (
            ("--task", "similarity", "--train", "near.tsv", "--other", "other"),
            "--other: the loss cosine learns from pairs alone",
        ),
        (
            ("--task", "retrieval", "--train", "pairs.tsv", "answer.widths=[8,999]"),
            "answer.widths: 999 is more than a vector has",
        ),
        (
            ("--task", "retrieval", "--train", "pairs.tsv", "answer.widths=[0]"),
            "answer: widths.0: must be 1 or more, not 0",
        ),
        (("--data", "one", "--dev", "one/train.tsv"), "train.tsv is what is learned from"),
    ],
)
def test_what_would_mean_nothing_is_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message) as caught:
        invoke("finetune", "model", "-o", tmp_path / "out", "epochs=1", *words)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_fine_tuned_model_is_made_small(folder: Path, tuned: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    found = printed(
        "compress", tuned, "epochs=1", "--train", folder / "train.tsv", "--method", "pkd-last",
        "--layers", 2, "-o", out, "--student", folder / "model",
    )  # fmt: skip
    assert found == json.loads((out / "compression.json").read_text())
    assert "pkd-last" in invoke("compress").stdout
    begun = printed("compress", folder / "model", "--layers", 1, "-o", tmp_path / "begun")
    assert begun["layers"] == [1]
    assert (tmp_path / "begun" / "model.safetensors").is_file()
    wrong = tmp_path / "wrong"
    taking = ("compress", folder / "model", "--layers", 1, "-o", wrong)
    for words, sentence in [
        ((*taking, "--alone"), "leave --alone out"),
        ((*taking, "--goal", "size<=9MB"), "leave --goal out"),
        ((*taking, "epochs=2"), "leave epochs=2 out"),
        (("compress", "-o", wrong), "leave --output out"),
        (("compress", tuned, "--namer", folder / "model", "-o", wrong), "leave --namer out"),
        (("compress", folder / "model", "-o", wrong), "is not fine-tuned for a task"),
        (("compress", "--goal", "size<=25MB"), "no model is named, .*leave --goal out"),
        (("compress", tuned), "name it with -o"),
        (("compress", tuned, "-o", wrong), "nothing to learn from"),
        (("compress", tuned, "-o", wrong, "--method", "pdk"), "no method 'pdk'"),
        (("compress", tuned, "-o", out), "exists"),
        (("trim", tuned, "-o", wrong, "--data", folder, "--column", "a"), "leave --column out"),
        (("static", tuned, "-o", wrong, "--format", "csv"), "leave --format out"),
    ]:
        with pytest.raises(UserError, match=sentence):
            invoke(*words)
    assert not wrong.exists()
    asked = ["compress", str(tuned), "-o", str(wrong), "--method", "pre-trained-distillation"]
    assert "no --transfer is given" in CliRunner().invoke(app, asked).stderr


def test_what_places_cost_in_few_bits_is_told(folder: Path, tuned: Path) -> None:
    given = ("sensitivity", tuned, "--train", folder / "train.tsv", "--examples", 6)
    found = printed(*given, "bits=2", "by=tensor", "activations.ranges=token", "--subsets", 1)
    by_place = {line["place"]: line for line in found["places"]}
    assert {"everything", "blocks.0", "blocks.1", "embeddings.pieces.weight"} <= by_place.keys()
    assert by_place["blocks.1"]["omega"] == abs(by_place["blocks.1"]["sharpness"])
    told = invoke(*given, "activations=null", "--subsets", 0).stdout
    assert "| blocks.0 |" in told
    assert "eigenvalue" not in told
    assert "reads" not in told
    for words, sentence in [
        (("sensitivity", folder / "model", *given[2:]), "is not fine-tuned for a task"),
        ((*given, "bits=9"), "bits: must be 8 or less, not 9"),
        ((*given, "kind=full"), "kind: must be 'quantised'"),
        (given[:2], "nothing to learn from"),
    ]:
        with pytest.raises(UserError, match=sentence):
            invoke(*words)
