"""``finetune``, ``search``, ``cross-validate``, ``learning-curve`` and ``glue``."""

import json
from pathlib import Path

import pytest

from bertwright.core.errors import UserError
from checkout import EXAMPLES
from commands import invoke, invoke_json
from small_tasks import classes

PLUGIN = EXAMPLES / "labelled_lines.py"


def test_finetune_repeats_over_seeds(folder: Path, tmp_path: Path) -> None:
    result = invoke_json(
        "finetune", folder / "model", "--tags", "tag", "--train", folder / "words.conll",
        "-o", tmp_path / "out", "--epochs", 1, "--seeds", 2,
        "dropout=0.2", "head.kind=plain", "head.pooling=positions",
    )  # fmt: skip
    assert set(result) >= {"task", "metric", "scores", "mean", "interval"}
    assert (result["task"], result["metric"], len(result["scores"])) == ("tag", "span-f1", 2)
    assert (tmp_path / "out" / "model.safetensors").is_file()


def test_tune_writes_the_best_model_and_all_trials(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    result = invoke_json(
        "tune", folder / "model", "--train", folder / "train.tsv", "-o", output, "--trials", 2,
        "epochs=1",
    )  # fmt: skip
    assert len(result["trials"]) == 2
    best = max(result["trials"], key=lambda trial: trial["mean"] or 0.0)
    assert result["best_settings"]["learning_rate"] == best["learning_rate"]
    written = json.loads((output / "tuning.json").read_text())
    assert written["best_settings"] == result["best_settings"]
    assert (output / "model.safetensors").is_file()


def test_folds_and_learning_curves_write_what_they_print(folder: Path, tmp_path: Path) -> None:
    options = (folder / "model", "--train", folder / "train.tsv", "epochs=1")
    folds = invoke_json("cross-validate", *options, "--folds", 2, "-o", tmp_path / "folds")
    assert json.loads((tmp_path / "folds" / "folds.json").read_text()) == folds
    assert len(folds["scores"]) == 2
    curve = invoke_json("learning-curve", *options, "--sizes", "8,all", "-o", tmp_path / "curve")
    assert json.loads((tmp_path / "curve" / "learning_curve.json").read_text()) == curve
    sizes = (8, len(classes()) - curve["held_out_examples"])
    assert [(point["encoder"], point["examples"]) for point in curve["learning_curve"]] == [
        (encoder, size) for encoder in ("pre-trained", "untrained") for size in sizes
    ]
    assert (tmp_path / "curve" / "learning_curve.png").is_file()


def test_glue_and_joint_tasks_write_a_folder_per_task(folder: Path, tmp_path: Path) -> None:
    data = ("--data", folder / "glue", "epochs=1")
    result = invoke_json("glue", folder / "model", *data, "-o", tmp_path / "glue")
    assert set(result["tasks"]) == {"cola", "sst-2"}
    assert (tmp_path / "glue" / "cola" / "model.safetensors").is_file()
    result = invoke_json(
        "finetune", folder / "model", "--task", "cola,glue/sst2", *data, "-o", tmp_path / "joint"
    )
    assert result["metric"] == "mean"
    assert (tmp_path / "joint" / "sst-2" / "model.safetensors").is_file()


def test_output_types_choose_the_metric(folder: Path, tmp_path: Path) -> None:
    result = invoke_json(
        "finetune", folder / "model", "--train", folder / "labels.jsonl",
        "--output-type", "labels", "-o", tmp_path / "labels", "epochs=1",
        "output_type.threshold=0.3",
    )  # fmt: skip
    assert result["metric"] == "micro-f1"
    result = invoke_json(
        "finetune", folder / "model", "--task", "retrieval", "--train", folder / "pairs.tsv",
        "--negative", "other", "-o", tmp_path / "retrieval", "epochs=1",
        "output_type.contrastive_temperature=0.1",
    )  # fmt: skip
    assert result["metric"] == "ndcg@10"


def test_labels_and_words_stay_text_whatever_yaml_makes_of_them(
    folder: Path, tmp_path: Path
) -> None:
    binary = "".join(f"{e.text}\t{'01'[e.label == 'old']}\n" for e in classes())
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{binary}")
    train = ("finetune", folder / "model", "--train", tmp_path / "train.tsv", "epochs=0")
    for number, weights in enumerate(("{0: 1, 1: 5}", '{"0": 1, "1": 5}')):
        invoke(*train, "-o", tmp_path / str(number), f"output_type.weights={weights}")
        task = json.loads((tmp_path / str(number) / "task.json").read_text())["task"]
        assert task["output_type"]["weights"] == {"0": 1.0, "1": 5.0}
    yes_or_no = binary.replace("\t0", "\tno").replace("\t1", "\tyes")
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{yes_or_no}")
    cloze = (*train, "--output-type", "cloze")
    invoke(
        *cloze, "-o", tmp_path / "cloze", "output_type.words.yes=old",
        "output_type.words={no: new}", "output_type.template='{text} is [MASK]'",
    )  # fmt: skip
    task = json.loads((tmp_path / "cloze" / "task.json").read_text())["task"]
    assert task["output_type"]["words"] == {"yes": "old", "no": "new"}
    assert task["output_type"]["template"] == "{text} is [MASK]"
    with pytest.raises(UserError, match=r"output_type\.words: 'yes' is not a single token"):
        invoke(*cloze, "-o", tmp_path / "x", "output_type.words.no=yes")


def test_a_plugin_adds_a_task(folder: Path, tmp_path: Path, temporary_plugins: None) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"{e.label}: {e.text}\n" for e in classes()))
    finetune = ("finetune", folder / "model", "--plugin", PLUGIN, "--task", "labelled-lines")
    result = invoke_json(*finetune, "--train", file, "-o", tmp_path / "tuned", "epochs=1")
    assert (result["task"], result["metric"]) == ("labelled-lines", "macro-f1")
    evaluation = invoke_json("evaluate", tmp_path / "tuned", "--data", file, "--plugin", PLUGIN)
    assert evaluation["task"] == "labelled-lines"
    file.write_text("old The red bird\n")
    with pytest.raises(UserError, match=r"lines\.txt line 1: no colon"):
        invoke(*finetune, "--train", file, "-o", tmp_path / "other")


WRONG_FILES = {
    "unseen": ("text\tlabel\na\told\nb\todd\n", r"dev\.tsv line 3: task train has no label 'odd'"),
    "empty": ("text\tlabel\n\told\n", r"dev\.tsv line 2, column 'text': the text is empty"),
    "column": ("txet\tlabel\na\told\n", r"dev\.tsv line 1: no column 'text': did you mean 'txet'"),
    "twice": ("text\tlabel\ttext\na\told\tb\n", r"dev\.tsv line 1: 2 columns are named 'text'"),
}


@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_wrong_file_is_named_and_nothing_written(folder: Path, tmp_path: Path, case: str) -> None:
    content, message = WRONG_FILES[case]
    dev = tmp_path / "dev.tsv"
    dev.write_text(content)
    with pytest.raises(UserError, match=message) as error:
        invoke(
            "finetune", folder / "model", "--train", folder / "train.tsv", "--dev", dev, "-o",
            tmp_path / "out",
        )  # fmt: skip
    assert "\n" not in str(error.value)
    assert {file.name for file in tmp_path.iterdir()} == {"dev.tsv"}


def test_truncated_training_examples_are_a_warning(folder: Path, tmp_path: Path) -> None:
    train = tmp_path / "train.tsv"
    train.write_text("text\tlabel\n" + f"{'red ' * 100_000}\told\n" + "a bird\tnew\n" * 8)
    finetune = ("finetune", folder / "model", "--train", train, "max_length=32")
    warnings = invoke(*finetune, "-o", tmp_path / "out", "epochs=1").stderr
    assert f"{train} line 2: 1 training example is longer than 32 tokens and truncated" in warnings
    assert "output_type.stride" in warnings
    pairs = f"{'red ' * 40}\t{'red ' * 40}\told\n" + "a bird\tit\tnew\n" * 8
    train.write_text("text\tother\tlabel\n" + pairs)
    # The first has windows already; a siamese model cannot have them.
    for setting in ("output_type.stride=4", "head.pooling=siamese"):
        options = ("-o", tmp_path / setting, "--pair", "other", "epochs=0", setting)
        warnings = invoke(*finetune, *options).stderr
        assert "truncated, this one first: raise max_length" in warnings
        assert "output_type.stride" not in warnings


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output-type", "nubmer"), "has no kind 'nubmer': did you mean 'number'"),
        (("output_type.strid=3",), "output_type: has no key 'strid': did you mean 'stride'"),
        (("adaptation=loar",), "adaptation: has no kind 'loar': did you mean 'lora'"),
        (("adaptation.rank=3",), "adaptation: needs a kind, one of: full"),
        (("adaptation.layer_decay=2",), "adaptation.layer_decay: must be 1 or less, not 2"),
        (("--epochs", "1", "epochs=2"), "epochs is stated twice: leave one out"),
        (("seed=1", "seed=2"), "seed is stated twice: leave one out"),
        (("--seeds", "2", "seeds=3"), "seeds is stated twice: leave one out"),
        (("learning_rate=.inf",), "finetune: learning_rate: must be a finite number"),
        (("--pair", "text"), "--pair text: that is the column of a text"),
        (("--label", "text"), "--label text: that is the column of a text"),
        (("--negative", "label"), "--negative is for --task similarity and retrieval"),
        (("--tags", "pos"), "--tags: no column 'pos'"),
        (("head={kind: bilstm, depth: 0}",), "head.depth: must be 1 or more, not 0"),
        (("adaptation={kind: lora, sublayers: []}",), "adaptation.sublayers: "),
        (("--output-type", "span"), "--output-type span is not for texts in columns: choose class"),
        (("output_type.weights=all",), "output_type: weights: must be 'balanced', not 'all'"),
        (("--output-type", "cloze", "output_type.stride=8"), "output_type: stride: a cloze"),
        (
            ("--output-type", "cloze", "output_type.weights.odl=2"),
            "output_type.weights: no label 'odl': did you mean 'old'",
        ),
        (("schedule=constant", "warmup=0.5"), "warmup and schedule both set the warmup"),
        (
            ("output_type.stride=64", "max_length=64"),
            "output_type.stride: 64 is not less than the maximum sequence length 64",
        ),
        (("head.kind=bilstm",), "head.kind: bilstm reads the words of a sentence"),
        (("head.layers=9",), "head.layers: no layers '9'"),
    ],
)
def test_a_wrong_setting_is_named(
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
        (("tune", "--grid", "bert", "--trials", "3"), "tune needs either --grid or --trials"),
        (("tune",), "tune needs either --grid or --trials"),
        (("tune", "--grid", "brt"), "--grid brt: did you mean 'bert'"),
        (("learning-curve", "--sizes", "a,b"), "--sizes a,b: write numbers separated by commas"),
        (("learning-curve", "--sizes", "4,all", "seed=abc"), "finetune: seed: must be"),
        (("cross-validate", "--folds", "2", "seed=abc"), "finetune: seed: must be"),
    ],
)
def test_a_wrong_option_of_a_search_is_named(
    folder: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    verb, *options = words
    train = ("--train", folder / "train.tsv", "-o", tmp_path / "x")
    with pytest.raises(UserError, match=message):
        invoke(verb, folder / "model", *train, *options)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--task", "glue", "--data", "glue"), "--task glue: run bertwright glue"),
        (("--task", "cola", "--label", "x"), "--task cola states its .*: leave --label out"),
        (("--task", "cola", "--tags", "upos"), "leave --tags out"),
        (("--task", "colla", "--data", "glue"), "no task 'colla'"),
        (("--tags", "upos", "--pair", "x"), "--tags reads words and their tags: leave --pair out"),
        (("--tags", "rte"), "no column 'rte'"),
        (("--task", "cola,sst-2", "--data", "glue", "--train", "a"), "leave --train out"),
        (("--task", "cola,sst-2", "--data", "glue", "--dev", "a"), "leave --dev out"),
        (("--task", "rank", "--train", "pairs.tsv", "--negative", "other"), "leave --negative out"),
        (
            ("--task", "similarity", "--train", "similar.tsv", "--negative", "other"),
            "--negative: the loss cosine learns from pairs alone",
        ),
        (
            ("--task", "retrieval", "--train", "pairs.tsv", "output_type.matryoshka_dims=[8,999]"),
            "output_type.matryoshka_dims: 999 is more than the 32 dimensions of a vector",
        ),
        (
            ("--task", "retrieval", "--train", "pairs.tsv", "output_type.matryoshka_dims=[0]"),
            "output_type: matryoshka_dims.0: must be 1 or more, not '0'",
        ),
        (("--data", "one", "--dev", "one/train.tsv"), "one/train.tsv is the training file"),
        (("--train", "train.tsv", "--label", "lable"), "no column 'lable': did you mean 'label'"),
        (("--train", "train.tsv", "epoch=1"), "no key 'epoch'"),
    ],
)
def test_options_that_contradict_the_task_are_refused(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=message) as error:
        invoke("finetune", "model", "-o", tmp_path / "out", "epochs=1", *words)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out").exists()


def test_glue_refuses_settings_of_the_output(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"leave output_type\.stride out"):
        invoke(
            "glue", folder / "model", "--data", folder / "glue", "-o", tmp_path / "out",
            "output_type.stride=8",
        )  # fmt: skip
    assert not (tmp_path / "out").exists()
