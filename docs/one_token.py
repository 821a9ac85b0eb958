"""Writes docs/one-token.md: one token's way through a training step, with the values it takes.

Everything on the way is the library's own; only the text and the sizes are small enough to print.
"""

import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from bertwright.examples.corruption import Replace
from bertwright.objectives.masked import Masked
from bertwright.recipes import Recipe
from bertwright.studies.one_token import Walk
from bertwright.text.marks import WORD_START
from bertwright.text.preparation import prepare
from bertwright.text.vocabularies import train_on_files

DOCUMENT = Path(__file__).with_name("one-token.md")

RECIPE = "modern-tiny"
CHANGES = (
    "text.tokenizer.size=200",
    "assembly.length=24",
    "phases=[{objectives: {masked: {selection: {rate: 0.15}, shift: 0}}}]",
    "optimiser={kind: adamw, rate: 1e-3}",
    "schedule=1",
    "batch_tokens=96",
    "precision=float32",
    "steps=250",
    "seed=7",
)

TEXT = """\
The lighthouse keeper wakes before the sun. He climbs the stairs and puts out the lamp. Then he
counts the ships in the harbour and writes their names in a book.

In the harbour the boats come home at noon. The fishermen carry the fish to the market. The keeper
buys bread and fish, and climbs the stairs again.

When the sun goes down the keeper lights the lamp. The ships see the light and keep away from the
rocks. No ship was lost in the years of this keeper.

The market stands beside the harbour. On the day of the market the ships bring bread, books and
lamps. The fishermen read the names of the ships and count the boats.

One night the lamp went out. The keeper climbed the stairs before the ships came near the rocks, and
he held up a small light until the sun came up.
"""


def write() -> str:
    """The document."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text(TEXT)
        recipe = Recipe.load(RECIPE, *CHANGES)
        tokenizer = train_on_files([text], Path(folder, "tokenizer"), recipe.text.tokenizer)
        data = prepare(text, Path(folder, "data"), tokenizer, heldout=0.2, num_workers=1)
        walk = Walk(data, recipe)
        parts = [_opening(walk), _pieces(walk), _row(walk), _hidden(walk), _states(walk)]
        return "\n".join([*parts, _answer_and_update(walk)])


def _opening(walk: Walk) -> str:
    changes = "\n".join(
        f"  {change!r} \\" if "{" in change else f"  {change} \\" for change in CHANGES
    )
    return f"""# One token's way

What happens to one piece of text in one step of training: everything below was computed by
`python docs/one_token.py`, which writes this page; a test compares the two. The recipe is
`{RECIPE}` with rows and a vocabulary that are small enough to print, in float32:

```text
{RECIPE} \\
{changes[:-2]}
```

Letters such as B, L, D and V are those of [notation.md](notation.md); the names of values inside
the encoder are the taps of [architecture.md](architecture.md#the-taps).
"""


def _pieces(walk: Walk) -> str:
    sentence = _sentence_of(walk.piece(walk.followed.target))
    ids, starts = walk.tokenizer.encode_words(sentence)
    rows = [
        ("piece", *(f"`{walk.piece(number)}`" for number in ids)),
        ("id", *ids),
        ("starts a word", *("yes" if n in starts else "" for n in range(len(ids)))),
    ]
    split = walk.data.split("train")
    marked = int((split.marks(0, split.num_pieces) & WORD_START > 0).sum())
    return f"""## Text to pieces

The text is five short documents. One of its sentences:

> {sentence}

The vocabulary was learned from the text: {walk.tokenizer.size} pieces, lower-cased. A word that is
no piece is cut from the left into the longest pieces there are; `##` marks those that continue a
word.

{_table(rows[0], rows[1:])}

`prepare` stores {split.num_pieces} such ids in the training split, two bytes each, and a byte of
marks beside each: {marked} of them start a word. The rest of the text is held out.
"""


def _row(walk: Walk) -> str:
    row = walk.followed.row
    document = walk.batch.coordinates.document
    position = walk.batch.coordinates.position
    assert document is not None
    assert position is not None
    original = _original(walk)
    rows = [
        ("place", *range(len(original))),
        ("piece", *(f"`{walk.piece(number)}`" for number in original)),
        ("document", *document[row]),
        ("position", *position[row]),
    ]
    pieces = walk.batch.pieces
    return f"""## Pieces to a row

A step takes B = {pieces.shape[0]} rows of L = {pieces.shape[1]} places. This is row {row} of the
first step, before anything is hidden; documents lie end to end, each with a number and positions
of its own:

{_table(rows[0], rows[1:])}
"""


def _hidden(walk: Walk) -> str:
    followed, question = walk.followed, walk.batch.questions["masked"]
    masked = walk.recipe.objectives_of(0)["masked"]
    assert isinstance(masked, Masked)
    shown = masked.corruption
    assert isinstance(shown, Replace)
    length = walk.batch.pieces.shape[1]
    rows = []
    for flat, target in zip(question.where, question.target, strict=True):
        row, place = divmod(int(flat), length)
        if row == followed.row:
            seen = walk.piece(walk.batch.pieces[row, place])
            rows.append((int(flat), place, f"`{walk.piece(target)}`", f"`{seen}`"))
    return f"""## What is hidden

{masked.selection.rate.at(0):.0%} of the places are asked about, in ever more rows whole words; of
those {shown.mask:.0%} show `[MASK]`, {shown.random:.0%} a random piece and {shown.keep:.0%} the
piece itself. Which, is a hash of the seed, the epoch, the row and the place: nothing is stored, and
the same step hides the same places for ever. In this row:

{_table(("place in the batch", "place in the row", "was", "shows"), rows)}

All rows together ask M = {len(question.where)} questions, in every step the same number. What
follows is about the one at place {followed.place}: what was **{walk.piece(followed.target)}** shows
`[MASK]`.
"""


def _states(walk: Walk) -> str:
    values, followed = walk.values(), walk.followed
    names = [
        "embeddings.pieces",
        "embeddings.output",
        "blocks.0.attention.output",
        "blocks.0.residual_middle",
        "blocks.0.feed_forward.output",
        "blocks.0.residual",
        "output",
    ]
    rows = []
    for name in names:
        value = values[name]
        here = value[min(followed.row, len(value) - 1)] if value.dim() == 3 else value
        vector = here[min(followed.place, len(here) - 1)]
        rows.append((f"`{name}`", " x ".join(map(str, value.shape)), _numbers(vector)))
    weights = values["blocks.0.attention.weights"][followed.row, :, followed.place]
    looks = [
        (head, ", ".join(_seen(walk, weights[head], best) for best in _largest(weights[head])))
        for head in range(len(weights))
    ]
    hidden = int((weights == 0).all(0).sum())
    return f"""## Through the encoder

The piece `[MASK]` is row {walk.tokenizer.specials.mask} of the table of pieces. From there on every
value has a name, under which it can be read or replaced. The first four of the D numbers at our
place:

{_table(("tap", "shape", "at our place"), rows)}

Attention in the first block: where each head looks most from our place. {hidden} of the
{weights.shape[1]} places belong to other documents and have weight 0. Nothing is learned yet, so
the rest is chance:

{_table(("head", "looks at (weight)"), looks)}
"""


def _answer_and_update(walk: Walk) -> str:
    followed = walk.followed
    target = followed.target
    before = walk.probabilities()
    row_before = walk.table_row()
    mean, gradient = walk.step(0)
    once = walk.probabilities()
    change = [
        ("before", _numbers(row_before)),
        ("gradient", _numbers(walk.table_gradient(gradient))),
        ("after", _numbers(walk.table_row())),
    ]
    answers = [_answer(walk, "before the step", before), _answer(walk, "after the step", once)]
    for number in range(1, walk.recipe.steps):
        walk.step(number)
    answers.append(_answer(walk, f"after {walk.recipe.steps}", walk.probabilities()))
    name = walk.piece(target)
    probability = float(before[target])
    return f"""## State to answer to loss

The output turns the state at our place through a dense layer, GELU and a norm, and multiplies it
with the table of pieces: V = {len(before)} logits, at the asked places only. The softmax gives
*{name}* the probability {probability:.4f}; who knows nothing would say 1/V = {1 / len(before):.4f}.
The loss of our question is -ln {probability:.4f} = {-math.log(probability):.3f} nats. The loss of
the step is the sum over all questions, divided once by their number: {mean:.3f}.

## Loss to gradient to update

Going backward, the loss reaches every parameter. The row of the table that stands for *{name}* gets
its gradient from two uses: as the answer that was wanted here, and as a piece that is read. In its
first step AdamW moves every number by the learning rate ({walk.recipe.optimiser.rate:g}), against
the sign of its gradient:

{_table((f"row of *{name}*", "first four numbers"), change)}

The same question, asked again:

{_table(("", f"probability of *{name}*", "loss", "most probable"), answers)}

So small a text is learned by heart, which shows that the way is open from the loss to the text and
back. [README](../README.md) begins with a text that is not.
"""


def _answer(walk: Walk, when: str, probabilities: Tensor) -> tuple[str, str, str, str]:
    chance = float(probabilities[walk.followed.target])
    best = walk.piece(int(probabilities.argmax()))
    return when, f"{chance:.3f}", f"{-float(probabilities[walk.followed.target].log()):.2f}", best


def _original(walk: Walk) -> list[int]:
    """The pieces of the row that is followed as they were."""
    row, question = walk.followed.row, walk.batch.questions["masked"]
    pieces = walk.batch.pieces[row].tolist()
    for flat, target in zip(question.where, question.target, strict=True):
        if int(flat) // len(pieces) == row:
            pieces[int(flat) % len(pieces)] = int(target)
    return pieces


def _sentence_of(word: str) -> str:
    sentences = " ".join(TEXT.split()).replace(". ", ".\n").splitlines()
    return next(sentence for sentence in sentences if word in sentence.lower())


def _seen(walk: Walk, weights: Tensor, place: int) -> str:
    shown = walk.piece(walk.batch.pieces[walk.followed.row, place])
    return f"`{shown}` at {place} ({float(weights[place]):.3f})"


def _largest(values: Tensor, number: int = 3) -> list[int]:
    return values.topk(number).indices.tolist()


def _numbers(vector: Tensor) -> str:
    return " ".join(f"{float(x):.4f}" for x in vector.flatten()[:4]) + " ..."


def _table(heading: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    names = [str(name) for name in heading]
    lines = [names, ["---"] * len(names), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    DOCUMENT.write_text(write(), encoding="utf-8")
    print(f"{DOCUMENT} written", file=sys.stderr)
