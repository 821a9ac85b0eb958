"""The README.md of an exported folder, with a Transformers example."""

from bertwright.data.tokenization.tokenizer import Tokenizer
from bertwright.interop.huggingface.head_types import (
    CAUSAL_LM,
    MULTIPLE_CHOICE,
    QUESTION_ANSWERING,
    SEQUENCE_CLASSIFICATION,
    TOKEN_CLASSIFICATION,
    EncoderModel,
)
from bertwright.tasks.task_model import TaskModel

PIPELINE_TAGS = {
    CAUSAL_LM: "text-generation",
    SEQUENCE_CLASSIFICATION: "text-classification",
    TOKEN_CLASSIFICATION: "token-classification",
    QUESTION_ANSWERING: "question-answering",
    MULTIPLE_CHOICE: "multiple-choice",
}


def make_model_card(
    model: EncoderModel,
    tokenizer: Tokenizer,
    architecture: str,
    head_type: str,
    max_length: int,
    usage_note: str,
    threshold_note: str,
) -> str:
    """Return the model card of a model exported to a stock class.

    ``usage_note`` describes inputs in addition to a text, ``threshold_note`` a threshold to apply.
    """
    has_lm_head = not isinstance(model, TaskModel) and model.output is not None
    task = PIPELINE_TAGS.get(head_type, "fill-mask" if has_lm_head else "feature-extraction")
    has_decoder = not isinstance(model, TaskModel) and model.decoder is not None
    has_no_pipeline = head_type in (QUESTION_ANSWERING, MULTIPLE_CHOICE)
    recipe = model.recipe
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    mask_token = tokenizer.id_to_token(tokenizer.special_tokens.mask)
    text = f"This is a {mask_token}." if task == "fill-mask" else "This is a sentence."
    kind, code = "An encoder", _pipeline_example(task, text)
    if has_decoder:
        kind, code = "A model", SEQ2SEQ_EXAMPLE
    elif has_no_pipeline:
        code = AUTO_CLASS_EXAMPLE.format(auto=head_type)
    notes = ""
    if usage_note:
        notes += f"\nThe class needs {usage_note} besides a text; no pipeline passes it.\n"
    if threshold_note:
        notes += f"\nStock classes do not do this, so do it yourself: {threshold_note}.\n"
    return f"""---
library_name: transformers
pipeline_tag: {"text2text-generation" if has_decoder else task}
---

# {recipe.name}

{kind} trained with bertwright, for the stock class `{architecture}`.
Source of the recipe: {recipe.source or "custom"}.

- parameters: {num_parameters:,}
- vocabulary: {len(tokenizer.ids):,} ({tokenizer.kind})
- maximum length: {max_length:,} tokens
{notes}
```python
{code}
```
"""


SEQ2SEQ_EXAMPLE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
inputs = tokenizer("This is a sentence.", return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs, max_new_tokens=64)[0]))"""


AUTO_CLASS_EXAMPLE = """from transformers import AutoModel{auto}, AutoTokenizer

model = AutoModel{auto}.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")"""


def _pipeline_example(task: str, text: str) -> str:
    return f"""from transformers import pipeline

pipe = pipeline("{task}", "this folder")
print(pipe("{text}"))"""
