"""A toy model, trained in a minute or two, to which every analysis applies."""

from pathlib import Path

from bertwright.analysis.behaviour.agreement import PLURAL
from bertwright.analysis.core.model import AnalysedModel
from bertwright.core.files import write_text
from bertwright.data.preparation import prepare
from bertwright.data.shards.dataset import Dataset
from bertwright.data.vocabulary_training import train_tokenizer
from bertwright.models.saving import load_model
from bertwright.models.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning.finetune import finetune
from bertwright.tasks.formats.dependency_trees import DependencyTree
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.training.pretraining.pretrain import pretrain
from experiments.analyses.grammar import sample_texts, sample_trees

SENTENCES = 12_000
"""Number of grammar sentences; each is followed by another text."""

SETTINGS = (
    "text.tokenizer={kind: words, vocab_size: 2000}",
    "encoder.width=64",
    "encoder.depth.layers=4",
    "encoder.mixer.heads=4",
    "encoder.feed_forward.width=256",
    "encoder.dropout=0",
    "assembly.length=64",
    "batch_tokens=2048",
)
"""Recipe settings of the toy, on top of ``modern``."""


def train_toy_encoder(folder: Path, steps: int) -> AnalysedModel:
    """Train an encoder of four blocks on the small language; its files go to ``folder``."""
    file = folder / "text.txt"
    texts = sample_texts(SENTENCES)
    # Documents of two sentences: analyses use short texts and pairs.
    pairs = zip(texts, texts, strict=True)
    write_text(file, "".join(f"{first}\n{second}\n\n" for first, second in pairs))
    recipe = Recipe.load("modern", *SETTINGS, f"steps={steps}")
    tokenizer = train_tokenizer(file.read_text("utf-8").splitlines(), recipe.text.tokenizer)
    data = prepare(file, folder / "data", tokenizer=tokenizer)
    pretrained = pretrain(recipe, data, folder / "toy", quiet=True)
    return AnalysedModel("toy", TextModel(*load_model(pretrained.folder), "float32"))


def train_toy_writer(folder: Path, steps: int) -> tuple[AnalysedModel, Dataset]:
    """Train a left-to-right model on the data of the encoder, already in ``folder``."""
    data = Dataset.open(folder / "data")
    recipe = Recipe.load("gpt-2", *SETTINGS, f"steps={steps}")
    pretrained = pretrain(recipe, data, folder / "writer", quiet=True)
    model = TextModel(*load_model(pretrained.folder), "float32")
    return AnalysedModel("writer", model), data


def train_toy_translator(folder: Path, steps: int) -> AnalysedModel:
    """Train a model that reverses sentences, with a single head in each of two blocks.

    Of several heads, rounding would decide which ones matter.
    """
    sides = {language: folder / f"{language}.txt" for language in ("to", "fro")}
    texts = list(sample_texts(SENTENCES))
    write_text(sides["to"], "".join(f"{text}\n" for text in texts))
    write_text(sides["fro"], "".join(f"{reverse_words(text)}\n" for text in texts))
    changes = ("encoder.depth.layers=2", "encoder.mixer.heads=1", "optimiser.learning_rate=2e-3")
    recipe = Recipe.load("transformer", *SETTINGS, *changes, f"steps={steps}")
    tokenizer = train_tokenizer(texts, recipe.text.tokenizer)
    data = prepare(f"to,fro={sides['to']},{sides['fro']}", folder / "pairs", tokenizer=tokenizer)
    pretrained = pretrain(recipe, data, folder / "translator", quiet=True)
    return AnalysedModel("translator", TextModel(*load_model(pretrained.folder), "float32"))


def reverse_words(text: str) -> str:
    """Reverse the words of a text."""
    return " ".join(reversed(text.split()))


def fine_tune_toy(toy: AnalysedModel) -> TextModel:
    """Fine-tune the toy to tell plural from singular subjects."""
    examples = [
        Example(" ".join(tree.words), None, "several" if _has_plural_subject(tree) else "one")
        for tree in sample_trees(300, seed=2)
    ]
    task = table_task("subject", Columns())
    return finetune(toy.text_model, task, train=examples[:240], dev=examples[240:], epochs=2).model


def _has_plural_subject(tree: DependencyTree) -> bool:
    """Return True if the subject of the sentence is plural."""
    verb = tree.heads.index(-1)
    (subject,) = (
        n for n, head in enumerate(tree.heads) if head == verb and tree.relations[n] == "nsubj"
    )
    return tree.words[subject] in PLURAL
