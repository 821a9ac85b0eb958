"""The README.md of an exported folder: what it is, and the lines that use it in Transformers."""

from bertwright.interop.huggingface.purposes import CAUSAL, TEXTS, WORDS, Net
from bertwright.tasks.task_model import TaskModel
from bertwright.text.tokenizers import Tokenizer

PIPELINES = {
    CAUSAL: "text-generation",
    TEXTS: "text-classification",
    WORDS: "token-classification",
}


def model_card(
    net: Net, tokenizer: Tokenizer, architecture: str, purpose: str, longest: int
) -> str:
    """The card of a model for a stock class; ``longest`` is its longest row."""
    names_pieces = not isinstance(net, TaskModel) and net.output is not None
    task = PIPELINES.get(purpose, "fill-mask" if names_pieces else "feature-extraction")
    recipe = net.recipe
    number = sum(parameter.numel() for parameter in net.parameters())
    hidden = tokenizer.piece(tokenizer.specials.mask)
    example = f"This is a {hidden}." if task == "fill-mask" else "This is a sentence."
    return f"""---
library_name: transformers
pipeline_tag: {task}
---

# {recipe.name}

An encoder made with bertwright, for the stock class `{architecture}`.
Source of the recipe: {recipe.source or "own"}.

- parameters: {number:,}
- vocabulary: {tokenizer.size:,} ({tokenizer.kind})
- longest row: {longest:,} pieces

```python
from transformers import pipeline

answer = pipeline("{task}", "this folder")
print(answer("{example}"))
```
"""
