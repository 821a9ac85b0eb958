"""The README.md of an exported folder: what it is, and the lines that use it in Transformers."""

from bertwright.interop.huggingface.purposes import CAUSAL, OPTIONS, SPANS, TEXTS, WORDS, Net
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Tokenizer

PIPELINES = {
    CAUSAL: "text-generation",
    TEXTS: "text-classification",
    WORDS: "token-classification",
    SPANS: "question-answering",
    OPTIONS: "multiple-choice",
}


def model_card(
    net: Net,
    tokenizer: Tokenizer,
    architecture: str,
    purpose: str,
    longest: int,
    told: str,
    threshold: str,
) -> str:
    """The card of a model for a stock class; ``longest`` is its longest row, ``told`` what the
    class needs beside a text, ``threshold`` what is to be done with its answers."""
    names_pieces = not isinstance(net, TaskModel) and net.output is not None
    task = PIPELINES.get(purpose, "fill-mask" if names_pieces else "feature-extraction")
    decodes = not isinstance(net, TaskModel) and net.decoder is not None
    asks = purpose in (SPANS, OPTIONS)
    recipe = net.recipe
    number = sum(parameter.numel() for parameter in net.parameters())
    hidden = tokenizer.piece(tokenizer.specials.mask)
    example = f"This is a {hidden}." if task == "fill-mask" else "This is a sentence."
    needs = f"\nBeside a text the class needs {told}; no pipeline gives it.\n" if told else ""
    needs += f"\nNo stock class does this, so do it yourself: {threshold}.\n" if threshold else ""
    return f"""---
library_name: transformers
pipeline_tag: {"text2text-generation" if decodes else task}
---

# {recipe.name}

{"A model" if decodes else "An encoder"} made with bertwright, for the stock class `{architecture}`.
Source of the recipe: {recipe.source or "own"}.

- parameters: {number:,}
- vocabulary: {len(tokenizer.ids):,} ({tokenizer.kind})
- longest row: {longest:,} pieces
{needs}
```python
{DECODING if decodes else LOADING.format(auto=purpose) if asks else _pipeline(task, example)}
```
"""


DECODING = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

model = AutoModelForSeq2SeqLM.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")
given = tokenizer("This is a sentence.", return_tensors="pt")
print(tokenizer.decode(model.generate(**given, max_new_tokens=64)[0]))"""


LOADING = """from transformers import AutoModel{auto}, AutoTokenizer

model = AutoModel{auto}.from_pretrained("this folder")
tokenizer = AutoTokenizer.from_pretrained("this folder")"""


def _pipeline(task: str, example: str) -> str:
    return f"""from transformers import pipeline

answer = pipeline("{task}", "this folder")
print(answer("{example}"))"""
