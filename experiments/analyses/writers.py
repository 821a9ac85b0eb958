"""Language models that write what a script says, and a small language to write."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from bertwright.analysis.core.analysis import AnalysisInput
from bertwright.analysis.core.texts import encode_texts
from bertwright.core.files import write_text
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.tasks.formats.examples import Example
from experiments.analyses.models import WORDS, small_model

CHAIN_WORDS = WORDS[:20]


def prepare_chains(folder: Path) -> Dataset:
    """Prepare 60 chains of words as training data."""
    generator = np.random.default_rng(0)
    documents = [" ".join(sample_chain(generator, 40)) for _ in range(60)]
    write_text(folder / "text.txt", "\n\n".join(documents) + "\n")
    tokenizer = small_model("gpt-2").tokenizer
    return prepare(folder / "text.txt", folder / "data", tokenizer=tokenizer)


def sample_chain(generator: np.random.Generator, length: int) -> list[str]:
    """Sample words from a chain in which two of twenty words may follow a word."""
    number, words = int(generator.integers(20)), list[str]()
    for _ in range(length):
        words.append(CHAIN_WORDS[number])
        number = (number + int(generator.choice([1, 7]))) % 20
    return words


def shuffled_texts(number: int) -> list[str]:
    """Return texts of 20 words in random order."""
    generator = np.random.default_rng(1)
    return [" ".join(generator.choice(CHAIN_WORDS, 20)) for _ in range(number)]


def training_words(data: Dataset, document: int, first: int = 4) -> list[int]:
    """Return the token ids of a training document, up to the twentieth."""
    split = data.split("train")
    start = int(split.document_starts[document])
    return split.token_ids(start + first, start + 20).tolist()


def scripted_inputs(
    data: Dataset, texts: Sequence[str], continuations: Callable[[int], list[int]]
) -> AnalysisInput:
    """Return inputs whose model continues text n by ``continuations(n)`` and the end token."""
    model = small_model("gpt-2")
    end = model.tokenizer.special_tokens.end

    def generate(prompts: Sequence[str], **_: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(token_ids=(*continuations(n), end)) for n in range(len(prompts))]

    vars(model.text_model)["generate"] = generate
    encoded = encode_texts(model, [Example(text) for text in texts])
    return AnalysisInput(model, encoded, training_data=data)
