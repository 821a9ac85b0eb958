"""Losses of a few short trainings, as JSON: two compiled, the others not."""

import json
import sys
import tempfile
from pathlib import Path

from bertwright.machine.process import tune_process

tune_process()

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("training", "")]

from small_recipe import small  # noqa: E402

from bertwright.training.metrics_file import read_metrics  # noqa: E402
from bertwright.training.pretraining import pretrain  # noqa: E402
from conftest import prepared  # noqa: E402

COMPILED = {
    "bert": ("objectives.next-sentence=null", "phases=[{}]"),
    "modern": ("phases=[{objectives: {masked: {}}}]",),
}
"""A system with learned positions and one with rotary ones."""

UNCOMPILED = ("bert", "roberta", "electra", "xlnet", "albert", "t5", "gpt-bert", "transformer-xl")


def losses(name: str, precision: str, compiled: bool, folder: Path) -> list[float]:
    """Return the losses of thirty steps, as means of ten."""
    changes = COMPILED.get(name, ()) if compiled else ()
    recipe = small(
        name,
        *changes,
        "steps=30",
        f"precision={precision}",
        f"compile={str(compiled).lower()}",
        "encoder.depth.layers=1",
        "text.tokenizer.kind=wordpiece",
    )
    pretrain(recipe, folder / "data", folder / f"{name}-{precision}-{compiled}", quiet=True)
    metrics = read_metrics(folder / f"{name}-{precision}-{compiled}" / "metrics.jsonl")
    return [line["loss"] for line in metrics if "loss" in line]


def main() -> None:
    """Print the losses of every training by its name."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        prepared(folder)
        by_training = {
            f"{name}, {precision}, compiled": losses(name, precision, True, folder)
            for name in COMPILED
            for precision in ("float32", "bf16")
        }
        by_training |= {
            f"{name}, float32, uncompiled": losses(name, "float32", False, folder)
            for name in UNCOMPILED
        }
    print(json.dumps(by_training))


if __name__ == "__main__":
    main()
