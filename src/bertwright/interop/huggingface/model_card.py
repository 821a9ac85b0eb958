"""The README.md of an exported folder: what it is, and the lines that use it in Transformers."""

from bertwright.interop.huggingface.purposes import (
    BARE,
    MASKED,
    ON_PAIRS,
    TEXTS,
    WORDS,
    Net,
    purpose_of,
)
from bertwright.text.tokenizers import Tokenizer

PIPELINES = {
    BARE: "feature-extraction",
    MASKED: "fill-mask",
    ON_PAIRS[0]: "fill-mask",
    ON_PAIRS[1]: "feature-extraction",
    TEXTS: "text-classification",
    WORDS: "token-classification",
}


def model_card(net: Net, tokenizer: Tokenizer, architecture: str, longest: int) -> str:
    """The card of a model for a stock class; ``longest`` is its longest row."""
    recipe, task = net.recipe, PIPELINES[purpose_of(net)]
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
