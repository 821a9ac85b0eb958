"""``predict``: order, resuming, and lines that cannot be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from bertwright.cli.verbs.tasks import predict
from bertwright.core.errors import UserError
from commands import invoke
from small_tasks import TEXTS, assert_same_predictions


def parse_lines(text: str) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file."""
    return [json.loads(line) for line in text.splitlines()]


def write_interrupted(model: Path, output: Path, lines: str) -> Path:
    """Return the partial file of a run that was interrupted after these lines."""
    resumable = predict.resumable_output(output, [model], None)
    with pytest.raises(KeyboardInterrupt), resumable.open(resume=False) as stream:
        stream.write(lines)
        raise KeyboardInterrupt
    output.unlink(missing_ok=True)
    return resumable.partial_path


def test_predictions_of_standard_input_keep_its_order(tuned: Path) -> None:
    lines = invoke("predict", tuned, stdin="\n".join(TEXTS[:3]) + "\n").stdout
    assert [line["text"] for line in parse_lines(lines)] == TEXTS[:3]


def test_predictions_of_a_file_are_a_file(folder: Path, tuned: Path, tmp_path: Path) -> None:
    output = tmp_path / "predictions.jsonl"
    invoke("predict", tuned, folder / "train.tsv", "-o", output)
    assert len(output.read_text().splitlines()) == len(TEXTS)


@pytest.mark.processor
def test_an_interrupted_run_is_resumed(tuned: Path, tmp_path: Path) -> None:
    texts, output = tmp_path / "texts.txt", tmp_path / "predictions.jsonl"
    texts.write_text("\n".join(TEXTS) + "\n")
    invoke("predict", tuned, texts, "-o", output)
    uninterrupted = output.read_text()
    partial = write_interrupted(tuned, output, uninterrupted[: len(uninterrupted) // 2])
    with pytest.raises(UserError, match=r"was left by an interrupted run: add --resume"):
        invoke("predict", tuned, texts, "-o", output)
    invoke("predict", tuned, texts, "-o", output, "--resume")
    assert not partial.exists()
    resumed = parse_lines(output.read_text())
    assert [line["text"] for line in resumed] == TEXTS
    assert_same_predictions(resumed, parse_lines(uninterrupted))
    with pytest.raises(UserError, match="is complete: there is nothing to resume"):
        invoke("predict", tuned, texts, "-o", output, "--resume")


def test_a_run_with_another_text_or_model_is_not_resumed(
    folder: Path, tuned: Path, tmp_path: Path
) -> None:
    texts, changed, short = (tmp_path / f"{name}.txt" for name in ("texts", "changed", "short"))
    texts.write_text("\n".join(TEXTS) + "\n")
    changed.write_text("\n".join([*TEXTS[:3], "something else", *TEXTS[4:]]) + "\n")
    short.write_text(TEXTS[0] + "\n")
    invoke("predict", tuned, texts, "-o", tmp_path / "whole.jsonl")
    uninterrupted = (tmp_path / "whole.jsonl").read_text()
    output = tmp_path / "predictions.jsonl"
    first_lines = "".join(uninterrupted.splitlines(keepends=True)[:8])
    partial = write_interrupted(tuned, output, first_lines)
    resume = ("-o", output, "--resume")
    for file, number in ((changed, 4), (short, 2)):
        with pytest.raises(UserError, match=rf"jsonl\.part line {number} is of another text"):
            invoke("predict", tuned, file, *resume)
    other_model = tmp_path / "other"
    invoke(
        "finetune", folder / "model", "--train", folder / "train.tsv", "-o", other_model,
        "epochs=4", "learning_rate=1e-2", "calibrate=false",
    )  # fmt: skip
    with pytest.raises(UserError, match=r"jsonl\.part was started with another model"):
        invoke("predict", other_model, texts, *resume)
    with pytest.raises(UserError, match=r"jsonl\.part was started with another precision"):
        invoke("predict", tuned, texts, *resume, "--precision", "bf16")
    assert len(partial.read_text().splitlines()) == 8
    invoke("predict", tuned, texts, *resume)
    assert_same_predictions(parse_lines(output.read_text()), parse_lines(uninterrupted))


def test_json_on_standard_input_needs_jsonl(tuned: Path) -> None:
    line = '{"text": "a bird"}\n'
    with pytest.raises(UserError, match="standard input line 1 is a JSON object: add --jsonl"):
        invoke("predict", tuned, stdin=line)
    prediction = json.loads(invoke("predict", tuned, "--jsonl", stdin=line).stdout)
    assert prediction["text"] == "a bird"


def test_a_line_that_cannot_be_read_leaves_no_file(tuned: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text('{"text": "a"}\n{"txt": "b"}\n')
    with pytest.raises(UserError, match=r"texts\.jsonl line 2: no column 'text'"):
        invoke("predict", tuned, texts, "-o", tmp_path / "predictions.jsonl")
    assert {file.name for file in tmp_path.iterdir()} == {"texts.jsonl"}


def test_predictions_of_several_models_are_averaged(tuned: Path, tmp_path: Path) -> None:
    alone = parse_lines(invoke("predict", tuned, stdin=TEXTS[0] + "\n").stdout)
    twice = parse_lines(invoke("predict", tuned, "--ensemble", tuned, stdin=TEXTS[0] + "\n").stdout)
    assert twice[0]["prediction"] == alone[0]["prediction"]
    assert twice[0]["probabilities"] == pytest.approx(alone[0]["probabilities"], rel=1e-4)
