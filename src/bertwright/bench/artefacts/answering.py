"""The side of an artefact: a process that answers rows of one length, again and again."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from bertwright.bench.turns import Turns
from bertwright.errors import UserError
from bertwright.interop.loading import load
from bertwright.interop.onnx.about import is_onnx
from bertwright.machine.process import tune_process
from bertwright.randomness import key
from bertwright.recipes.loading import import_plugin
from bertwright.tasks.encoding import TaskRow
from bertwright.tasks.fine_tuned import FineTuned


def rows_of(model: FineTuned, number: int, length: int) -> list[TaskRow]:
    """So many rows of this length, of pieces drawn by chance; words to tag are two pieces long."""
    draw = np.random.default_rng(key(number, "artefacts", length))
    special, size = model.tokenizer.specials, model.tokenizer.size
    places = tuple(range(1, length - 1, 2)) if model.task.answer.reads == "places" else ()
    segments = [0] * length if model.maker.segmented else None
    return [
        TaskRow(
            [special.start, *draw.integers(0, size, length - 2).tolist(), special.end],
            number,
            segments,
            places,
        )
        for number in range(number)
    ]


def main() -> None:
    """Wait for a turn, answer, and say how long it took."""
    settings = json.loads(sys.argv[1])
    turns = Turns.over_standard_streams("cpu")
    tune_process()
    for plugin in settings["plugins"]:
        import_plugin(Path(plugin))
    folder, threads = Path(settings["folder"]), settings["threads"]
    if threads:
        torch.set_num_threads(threads)
    model = load(folder, settings["precision"], threads if is_onnx(folder) else None)
    if not isinstance(model, FineTuned):
        raise UserError(f"{folder} is not fine-tuned for a task")
    rows = rows_of(model, settings["batch"], settings["length"])
    while True:
        turns.before_step()
        model.outputs(rows)


if __name__ == "__main__":
    main()
