"""Export to sentence-transformers: dense, sparse and multi-vector encoders, and cross-encoders."""

from pathlib import Path

from bertwright.interop.huggingface.exporter import HuggingFaceExport
from bertwright.interop.sentence_transformers.cross_encoder import export_cross_encoder
from bertwright.interop.sentence_transformers.dense import export_dense_encoder
from bertwright.interop.sentence_transformers.folder import SAMPLE_TEXTS
from bertwright.interop.sentence_transformers.multi_vector import export_multi_vector_encoder
from bertwright.interop.sentence_transformers.sparse import export_sparse_encoder
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.outputs import LateInteractionOutput, RelevanceOutput, SparseOutput

__all__ = ["SAMPLE_TEXTS", "export_sentence_transformers"]


def export_sentence_transformers(
    model: TextModel, folder: Path, verify: bool = False, model_type: str | None = None
) -> HuggingFaceExport:
    """Write a folder for the model type of sentence-transformers that computes the same.

    They are ``SparseEncoder`` for token weights, ``MultiVectorEncoder`` for late interaction,
    ``CrossEncoder`` for relevance, and ``SentenceTransformer`` for all other models. ``verify``
    loads the folder and compares the results in float32; a folder whose results differ is not kept.

    Raises UserError if no stock class can compute the recipe from texts alone, or no module its
    pooling; MissingExtra if ``verify`` needs sentence-transformers.
    """
    if isinstance(model, FineTunedModel):
        settings = model.task, model.example_encoder.max_length, "float32", model.temperature
        model = FineTunedModel(model.task_model, model.tokenizer, *settings)
        match model.task.output_type:
            case SparseOutput():
                return export_sparse_encoder(model, folder, verify, model_type)
            case LateInteractionOutput():
                return export_multi_vector_encoder(model, folder, verify, model_type)
            case RelevanceOutput():
                return export_cross_encoder(model, folder, verify, model_type)
            case _:
                pass
    return export_dense_encoder(model, folder, verify, model_type)
