"""Requirements of analyses: each function returns why one is not met, or None if it is."""

from bertwright.analysis.core.analysis import AnalysisInput, Requirement
from bertwright.analysis.core.prediction_probe import is_classifier
from bertwright.analysis.core.texts import has_several_tokens
from bertwright.core.errors import UserError
from bertwright.models.scoring.likelihood import causal_visibility
from bertwright.models.scoring.masked_states import final_objective, final_objectives
from bertwright.models.text_model import TextModel
from bertwright.tasks.fine_tuned_model import FineTunedModel
from bertwright.tasks.formats.dependency_trees import DependencyTree

IN_POSITION_PREDICTION = "masked tokens in their own positions"
EMBEDDINGS_ALONE = "its head reads the embeddings alone, so no layer has an effect"


def missing_long_texts(inputs: AnalysisInput) -> str | None:
    """Require a text long enough to compare tokens."""
    long_enough = any(map(has_several_tokens, inputs.texts))
    return None if long_enough else "it needs a text of three tokens or more"


def missing_halves(purpose: str = "train on") -> Requirement:
    """Return a requirement for enough texts to split in half."""
    reason = f"it needs four texts: two to {purpose}, two to test on"
    return lambda inputs: None if len(inputs.texts) >= 4 else reason


def missing_trees(inputs: AnalysisInput) -> str | None:
    """Require a dependency tree for every text."""
    if all(isinstance(text.source, DependencyTree) for text in inputs.texts):
        return None
    return "it needs sentences with dependency trees: give a CoNLL-U file"


def missing_lm_head(inputs: AnalysisInput) -> str | None:
    """Require a language model that predicts a token from others, or from those before it."""
    text_model = inputs.model.text_model
    if not text_model.has_lm_head:
        return "the model has no language-model head"
    if text_model.is_causal and not _reads_left_to_right(text_model):
        return "the model reads texts from right to left"
    return None


def _reads_left_to_right(text_model: TextModel) -> bool:
    try:
        causal_visibility(text_model.model)
    except UserError:
        return False
    return True


def missing_left_to_right(inputs: AnalysisInput) -> str | None:
    """Require a model that generates from left to right."""
    text_model = inputs.model.text_model
    if text_model.has_lm_head and text_model.is_causal and _reads_left_to_right(text_model):
        return None
    return "it needs a model that generates from left to right"


def missing_training_data(inputs: AnalysisInput) -> str | None:
    """Require the data on which the model was trained, in its tokens."""
    data, model = inputs.training_data, inputs.model
    if data is None:
        return "it needs the training data: give the folder that prepare wrote as --training-data"
    if data.manifest.tokenizer.hash != model.tokenizer.hash:
        return f"{data.path} was prepared with another tokenizer than that of {model.name}"
    return None


def missing_classes(inputs: AnalysisInput) -> str | None:
    """Require a classifier of texts."""
    if is_classifier(inputs.model):
        return None
    return "it needs a model fine-tuned to classify texts"


def missing_predictions(inputs: AnalysisInput) -> str | None:
    """Require predictions that can be scored."""
    if not inputs.model.num_layers_read:
        return EMBEDDINGS_ALONE
    if is_classifier(inputs.model):
        return _missing_sequence_classes(inputs)
    if not inputs.model.text_model.has_lm_head:
        return "the model has neither a language-model head nor a classifier"
    return None


def _missing_sequence_classes(inputs: AnalysisInput) -> str | None:
    """Require a classifier of the whole sequence of a text, without a template."""
    text_model = inputs.model.text_model
    assert isinstance(text_model, FineTunedModel)
    if text_model.task.output_type.level == "sequence":
        return None
    return "its classes are words in a template that surrounds every text"


def missing_plain_attention(inputs: AnalysisInput) -> str | None:
    """Require attention only between positions of the text itself."""
    if final_objective(inputs.model.text_model.model, "permutation") is not None:
        return (
            "the model predicts tokens in extra positions behind the text, which this analysis "
            "does not cover"
        )
    return None


def missing_masked_prediction(inputs: AnalysisInput) -> str | None:
    """Require predictions of masked tokens at their own positions."""
    text_model = inputs.model.text_model
    elsewhere = missing_plain_attention(inputs) is not None or any(
        objective.prediction_shift for objective in final_objectives(text_model.model)
    )
    if not text_model.has_lm_head or text_model.is_causal or elsewhere:
        return f"it needs a model that predicts {IN_POSITION_PREDICTION}"
    return None


def missing_text_prediction(inputs: AnalysisInput) -> str | None:
    """Require a classifier, or predictions of masked tokens at their own positions."""
    if not inputs.model.num_layers_read:
        return EMBEDDINGS_ALONE
    if is_classifier(inputs.model):
        return _missing_sequence_classes(inputs)
    if missing_masked_prediction(inputs) is None:
        return None
    return f"it needs a classifier, or a model that predicts {IN_POSITION_PREDICTION}"
