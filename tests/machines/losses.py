"""Print the losses of a few short trainings as JSON; two are compiled."""

import json
import sys
import tempfile
from pathlib import Path

from bertwright.runtime.process import configure_process

configure_process()

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))


from bertwright.training.pretraining.pretrain import pretrain  # noqa: E402
from bertwright.training.reporters.metrics_file import read_metrics  # noqa: E402
from small_recipe import small  # noqa: E402
from toy_stories import prepare_stories  # noqa: E402

COMPILED = {
    "bert": ("objectives.next-sentence=null", "phases=[{}]"),
    "modern": ("phases=[{objectives: {masked: {}}}]",),
}
"""Compiled systems: one with learned and one with rotary positions."""

UNCOMPILED = ("bert", "roberta", "electra", "xlnet", "albert", "t5", "gpt-bert", "transformer-xl")


def losses(name: str, precision: str, compiled: bool, folder: Path) -> list[float]:
    """Return the losses of thirty steps, as means of ten steps."""
    overrides = COMPILED.get(name, ()) if compiled else ()
    recipe = small(
        name,
        *overrides,
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
    """Print the losses of every training by name."""
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        prepare_stories(folder)
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
