"""A folder to a model that is ready to use, whoever wrote it."""

from pathlib import Path

from bertwright.axes import ReadingPrecision
from bertwright.compression import quantisation
from bertwright.errors import UserError
from bertwright.interop import huggingface
from bertwright.interop.onnx.about import is_onnx
from bertwright.interop.onnx.reading import load_onnx
from bertwright.model.folder import RECIPE, is_model, load_model
from bertwright.model.text_model import TextModel
from bertwright.tasks.fine_tuned import is_fine_tuned, load_fine_tuned

LEFT_BEHIND = (quantisation,)
"""Rooms whose adaptations a finished model may name: they are known when these are imported."""


def load(
    path: str | Path, precision: ReadingPrecision | None = None, threads: int | None = None
) -> TextModel:
    """The model of a folder: one of ours, exported to ONNX or not, or a Hugging Face folder of a
    known family.

    A fine-tuned one comes as a :class:`~bertwright.tasks.fine_tuned.FineTuned`, which predicts.
    ``precision`` None computes in bfloat16 where the device multiplies it natively; an ONNX folder
    in 8 bits where it holds such a graph. ``threads`` are those of onnxruntime, None for as many as
    there are cores; PyTorch's are those of ``torch.set_num_threads``.

    Errors: UserError where there is no model, or a damaged one.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(f"there is no model folder {folder}")
    if is_onnx(folder):
        return load_onnx(folder, precision, threads)
    if threads is not None:
        raise UserError(
            f"threads are told to onnxruntime, and {folder} is no ONNX folder: use "
            f"torch.set_num_threads"
        )
    if is_fine_tuned(folder):
        return load_fine_tuned(folder, precision)
    if is_model(folder):
        return TextModel(*load_model(folder), precision)
    if huggingface.is_huggingface(folder):
        return huggingface.load(folder, precision)
    raise UserError(
        f"{folder} holds no model: neither {RECIPE} with its weights (a training that was cut off "
        f"is finished with pretrain --resume) nor a Hugging Face config.json"
    )
