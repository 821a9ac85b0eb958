"""Load a model of any supported format, importing only the code for that format."""

from pathlib import Path

from bertwright.core.config import InferencePrecision
from bertwright.core.errors import UserError
from bertwright.data.hub.download import local_folder
from bertwright.interop.gguf import is_gguf
from bertwright.interop.huggingface import is_huggingface_folder
from bertwright.interop.onnx.manifest import is_onnx_folder
from bertwright.models.saving import RECIPE_FILE, is_fine_tuned, is_model_folder, load_model
from bertwright.models.text_model import TextModel


def load(
    path: str | Path, precision: InferencePrecision | None = None, threads: int | None = None
) -> TextModel:
    """Return the model of a folder: bertwright's, ONNX, GGUF, or Hugging Face of a known family.

    A checkpoint of a pre-training run, ``RUN/checkpoints/step-N``, is also a model. A GGUF file may
    be named itself; only those that bertwright wrote can be read.

    ``path`` may also be a name on the Hugging Face Hub: ``owner/name`` or ``owner/name@revision``.

    A fine-tuned model is a :class:`~bertwright.tasks.fine_tuned_model.FineTunedModel`.
    ``precision`` defaults to bfloat16 if the device multiplies it natively, else float32; an ONNX
    folder defaults to its int8 graph, if it has one. ``threads`` applies only to onnxruntime and
    defaults to the number of cores.

    Raises UserError for a missing or damaged model.
    """
    folder = local_folder(path)
    is_gguf_model = is_gguf(folder)
    if not folder.is_dir() and not is_gguf_model:
        raise UserError(f"no model folder {folder} (a name on the Hub is written owner/name)")
    if is_onnx_folder(folder):
        from bertwright.interop.onnx.model import load_onnx

        return load_onnx(folder, precision, threads)
    if threads is not None:
        raise UserError(
            f"threads applies to ONNX models only, and {folder} is none: call "
            f"torch.set_num_threads instead"
        )
    if is_gguf_model:
        from bertwright.interop.gguf.reader import load_gguf

        return load_gguf(folder, precision)
    if is_fine_tuned(folder):
        from bertwright.tasks.fine_tuned_model import load_fine_tuned_model

        return load_fine_tuned_model(folder, precision)
    if is_model_folder(folder):
        return TextModel(*load_model(folder), precision)
    if is_huggingface_folder(folder):
        from bertwright.interop.huggingface.importer import load_huggingface

        return load_huggingface(folder, precision)
    from bertwright.training.checkpoint_model import is_checkpoint, load_checkpoint_model

    if is_checkpoint(folder):
        return TextModel(*load_checkpoint_model(folder), precision)
    raise UserError(
        f"{folder} holds no model: neither {RECIPE_FILE} with weights (finish an interrupted "
        f"training with pretrain --resume, or name one of its checkpoints/step-*) nor a Hugging "
        f"Face config.json"
    )
