"""An encoder as sentence-transformers reads it: the same vectors."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from bertwright.bench.embedding import checkpoint_folder
from bertwright.cli.application import app
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.sentence_transformers import TEXTS, export_sentence_transformers
from bertwright.tasks.answers import ClosenessAnswer
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.tables import Columns
from small_tasks import classes, similar

SETTINGS = {"epochs": 1, "compile": False, "precision": "float32"}


@pytest.mark.parametrize("read", ["mean", "first"])
def test_a_model_of_closeness_gives_the_same_vectors(tmp_path: Path, read: str) -> None:
    # Takes seconds to import, which the other worker need not spend.
    from sentence_transformers import SentenceTransformer

    model = load(checkpoint_folder(), "float32")
    task = table_task("own", Columns(), ClosenessAnswer(highest=5.0))
    head = {"kind": "plain", "read": read}
    finetune(
        model, task, train=similar(), dev=similar(), out=tmp_path / "own", head=head, **SETTINGS
    )
    tuned = load(tmp_path / "own", "float32")
    export_sentence_transformers(tuned, tmp_path / "export", verify=True)
    theirs = SentenceTransformer(str(tmp_path / "export"), device="cpu").encode(list(TEXTS))
    ours = tuned.embed(TEXTS, "mean" if read == "mean" else "cls")
    assert np.abs(theirs - ours).max() < 1e-5


def test_the_command_line_writes_the_same(tmp_path: Path) -> None:
    out = tmp_path / "export"
    said = CliRunner().invoke(
        app,
        ["export", str(checkpoint_folder()), "--to", "sentence-transformers", "-o", str(out),
         "--verify"],
    )  # fmt: skip
    assert said.exit_code == 0, said.output
    assert (out / "modules.json").is_file()


def test_a_model_without_vectors_is_refused(tmp_path: Path) -> None:
    model = load(checkpoint_folder(), "float32")
    found = finetune(model, table_task("own", Columns()), train=classes(), **SETTINGS)
    with pytest.raises(UserError, match="a model for own gives no vectors"):
        export_sentence_transformers(found.model, tmp_path / "export")
    assert not (tmp_path / "export").exists()
