"""A toy model, trained here in a minute or two: what every analysis can be tried on."""

from pathlib import Path

from bertwright.analysis.behaviour.agreement import PLURAL
from bertwright.analysis.planted.grammar import texts, trees
from bertwright.analysis.subject import Subject
from bertwright.files import write_text
from bertwright.model.folder import load_model
from bertwright.model.text_model import TextModel
from bertwright.recipes import Recipe
from bertwright.tasks.catalogue import table_task
from bertwright.tasks.finetuning import finetune
from bertwright.tasks.formats.examples import Example
from bertwright.tasks.formats.tables import Columns
from bertwright.tasks.formats.treebank import Tree
from bertwright.text.preparation import prepare
from bertwright.text.vocabularies import train_tokenizer
from bertwright.training.pretraining import pretrain

SENTENCES = 12_000
"""Of the grammar; another comes with each."""

SETTINGS = (
    "text.tokenizer={kind: words, size: 2000}",
    "encoder.width=64",
    "encoder.depth.layers=4",
    "encoder.mixer.heads=4",
    "encoder.feed_forward.width=256",
    "encoder.dropout=0",
    "assembly.length=64",
    "batch_tokens=2048",
)
"""Of the toy, whose system is ``modern``."""


def train_toy(folder: Path, steps: int) -> Subject:
    """An encoder of four blocks that has learned the small language; its files go to ``folder``."""
    file = folder / "text.txt"
    said = texts(SENTENCES)
    # Documents of two sentences: short ones are asked for, and one of them follows another.
    write_text(file, "".join(f"{one}\n{other}\n\n" for one, other in zip(said, said, strict=True)))
    recipe = Recipe.load("modern", *SETTINGS, f"steps={steps}")
    tokenizer = train_tokenizer(file.read_text("utf-8").splitlines(), recipe.text.tokenizer)
    data = prepare(file, folder / "data", tokenizer=tokenizer)
    pretrained = pretrain(recipe, data, folder / "toy", quiet=True)
    return Subject("toy", TextModel(*load_model(pretrained.path), "float32"))


def train_translator(folder: Path, steps: int) -> Subject:
    """A model that has learned to say the sentences of the small language backwards, by one head in
    each of two blocks: of several, which do the same depends on rounding, and none is missed."""
    sides = {language: folder / f"{language}.txt" for language in ("to", "fro")}
    said = list(texts(SENTENCES))
    write_text(sides["to"], "".join(f"{one}\n" for one in said))
    write_text(sides["fro"], "".join(f"{backwards(one)}\n" for one in said))
    own = ("encoder.depth.layers=2", "encoder.mixer.heads=1", "optimiser.rate=2e-3")
    recipe = Recipe.load("transformer", *SETTINGS, *own, f"steps={steps}")
    tokenizer = train_tokenizer(said, recipe.text.tokenizer)
    data = prepare(f"to,fro={sides['to']},{sides['fro']}", folder / "pairs", tokenizer=tokenizer)
    pretrained = pretrain(recipe, data, folder / "translator", quiet=True)
    return Subject("translator", TextModel(*load_model(pretrained.path), "float32"))


def backwards(text: str) -> str:
    """The words of a text from the last to the first."""
    return " ".join(reversed(text.split()))


def tuned(toy: Subject) -> TextModel:
    """The toy, fine-tuned to tell whether one or several do what a sentence says."""
    examples = [
        Example(" ".join(tree.words), None, "several" if _several(tree) else "one")
        for tree in trees(300, seed=2)
    ]
    task = table_task("subject", Columns())
    return finetune(toy.text_model, task, train=examples[:240], dev=examples[240:], epochs=2).model


def _several(tree: Tree) -> bool:
    """Whether the subject of a sentence is plural."""
    verb = tree.heads.index(-1)
    (subject,) = (
        n for n, head in enumerate(tree.heads) if head == verb and tree.relations[n] == "nsubj"
    )
    return tree.words[subject] in PLURAL
