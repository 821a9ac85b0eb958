"""The worker process of an artefact, which repeats forward passes on random sequences."""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from bertwright.core.errors import UserError
from bertwright.core.rng import stream_key
from bertwright.interop.loading import load
from bertwright.interop.onnx.manifest import is_onnx_folder
from bertwright.recipes.loading import import_plugin
from bertwright.runtime.process import configure_process
from bertwright.tasks.example_encoder import TaskSequence
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.timing.interleaved import StepTimer


def random_task_sequences(
    model: FineTunedModel, batch_size: int, sequence_length: int
) -> list[TaskSequence]:
    """Return random sequences of equal length; for tagging, each word has two tokens."""
    rng = np.random.default_rng(stream_key(batch_size, "artefacts", sequence_length))
    special, size = model.tokenizer.special_tokens, model.tokenizer.vocab_size
    has_words = model.task.output_type.level == "token"
    word_starts = tuple(range(1, sequence_length - 1, 2)) if has_words else ()
    segments = [0] * sequence_length if model.example_encoder.has_segments else None
    return [
        TaskSequence(
            [special.start, *rng.integers(0, size, sequence_length - 2).tolist(), special.end],
            index,
            segments,
            word_starts,
        )
        for index in range(batch_size)
    ]


def main() -> None:
    """Run timed forward passes on demand."""
    settings = json.loads(sys.argv[1])
    timer = StepTimer.from_standard_streams("cpu")
    configure_process()
    for plugin in settings["plugins"]:
        import_plugin(Path(plugin))
    folder, threads = Path(settings["folder"]), settings["threads"]
    if threads:
        torch.set_num_threads(threads)
    model = load(folder, settings["precision"], threads if is_onnx_folder(folder) else None)
    if not isinstance(model, FineTunedModel):
        raise UserError(f"{folder} is not fine-tuned for a task")
    sequences = random_task_sequences(model, settings["batch_size"], settings["max_length"])
    while True:
        timer.before_step()
        model.head_outputs(sequences)


if __name__ == "__main__":
    main()
