"""Coverage of prediction sets over random halves."""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from benchmarks.__main__ import app
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.tables import Columns
from bertwright.testing.toy import toy_text_model
from small_tasks import TEXTS, classes


def test_the_measured_coverage_is_what_was_promised(tmp_path: Path) -> None:
    data, document = tmp_path / "labelled.jsonl", tmp_path / "results.md"
    examples = classes() * 4
    lines = [json.dumps({"text": e.text, "label": e.label}) + "\n" for e in examples]
    data.write_text("".join(lines), encoding="utf-8")
    task = table_task("small", Columns("text", None, "label"), "class")
    settings: dict[str, Any] = {"train": classes(), "dev": classes(), "epochs": 0}
    finetune(toy_text_model(TEXTS), task, output=tmp_path / "model", **settings)

    words = ["conformal", f"{tmp_path / 'model'}={data}", "--repetitions", "40", "--json"]
    result = CliRunner().invoke(app, [*words, "--document", str(document)])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["results"]
    for row in rows:
        if row["promise"].startswith("coverage"):
            # Halves without replacement, and texts that repeat.
            assert row["measured"] >= float(row["promise"].split()[1]) - 0.05
    assert "bench conformal" in document.read_text(encoding="utf-8")
