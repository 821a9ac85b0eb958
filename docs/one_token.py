"""Write docs/concepts/one-token.md: one token's way through a training step, with all values."""

import math
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from bertwright.batches.masking.corruption import TokenReplacement
from bertwright.data.preparation import prepare
from bertwright.data.tokenization.boundaries import WORD_START
from bertwright.data.vocabulary_training import train_tokenizer_on_files
from bertwright.objectives.masked import MaskedLM
from bertwright.optimisers.adam import AdamWConfig
from bertwright.recipes import Recipe
from experiments.one_token import FollowedRun

DOCUMENT = Path(__file__).parent / "concepts" / "one-token.md"

RECIPE = "modern-tiny"
CHANGES = (
    "text.tokenizer.vocab_size=200",
    "assembly.length=24",
    "phases=[{objectives: {masked: {selection: {masking_rate: 0.15}, shift: 0}}}]",
    "optimiser={kind: adamw, learning_rate: 1e-3}",
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
    """Return the page."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "text.txt")
        text.write_text(TEXT)
        recipe = Recipe.load(RECIPE, *CHANGES)
        tokenizer = train_tokenizer_on_files(
            [text], Path(folder, "tokenizer"), recipe.text.tokenizer
        )
        data = prepare(text, Path(folder, "data"), tokenizer, heldout=0.2, num_workers=1)
        run = FollowedRun(data, recipe)
        sections = [_introduction(), _tokenization(run), _sequence(run), _masking(run)]
        return "\n".join([*sections, _hidden_states(run), _loss_and_update(run)])


def _introduction() -> str:
    changes = "\n".join(
        f"  {change!r} \\" if "{" in change else f"  {change} \\" for change in CHANGES
    )
    return f"""# One token through a training step

This page follows one token through one training step. `python docs/one_token.py` computes all
values and writes the page; a test checks that they agree. The recipe is `{RECIPE}` in float32, with
a vocabulary and sequences small enough to print:

```text
{RECIPE} \\
{changes[:-2]}
```

B is the number of sequences, L their length, D the hidden width, V the vocabulary size, and M the
number of targets. [Hook points](../reference/hooks.md) lists the names of all values inside the
encoder.
"""


def _tokenization(run: FollowedRun) -> str:
    sentence = _sentence_of(run.token_text(run.token.token_id))
    ids, word_starts = run.tokenizer.encode_with_word_starts(sentence)
    rows = [
        ("token", *(f"`{run.token_text(token_id)}`" for token_id in ids)),
        ("id", *ids),
        ("starts a word", *("yes" if n in word_starts else "" for n in range(len(ids)))),
    ]
    split = run.data.split("train")
    num_words = int((split.boundaries(0, split.num_tokens) & WORD_START > 0).sum())
    return f"""## Text to token ids

The text has five short documents. This is one of its sentences:

> {sentence}

The WordPiece vocabulary of {run.tokenizer.vocab_size} lower-case tokens was trained on this text. A
word that is not in the vocabulary is split, from the left, into the longest possible tokens;
`##` marks continuations.

{_table(rows[0], rows[1:])}

`prepare` stores the {split.num_tokens} token ids of the training split, with two bytes per id
and one byte of boundary flags. {num_words} of the tokens start a word. The rest of the text is
held out.
"""


def _sequence(run: FollowedRun) -> str:
    row = run.token.sequence_index
    document_ids = run.batch.token_info.document_ids
    position_ids = run.batch.token_info.position_ids
    assert document_ids is not None
    assert position_ids is not None
    original = _unmasked_ids(run)
    rows = [
        ("index", *range(len(original))),
        ("token", *(f"`{run.token_text(token_id)}`" for token_id in original)),
        ("document", *document_ids[row]),
        ("position", *position_ids[row]),
    ]
    num_sequences, length = run.batch.token_ids.shape
    return f"""## Token ids to a batch

A batch has B = {num_sequences} sequences of L = {length} tokens. This is sequence {row} of the
first batch before masking. Documents are packed end to end. Each has its own number and positions:

{_table(rows[0], rows[1:])}
"""


def _masking(run: FollowedRun) -> str:
    followed, targets = run.token, run.batch.targets["masked"]
    objective = run.recipe.objectives_of(0)["masked"]
    assert isinstance(objective, MaskedLM)
    corruption = objective.corruption
    assert isinstance(corruption, TokenReplacement)
    length = run.batch.token_ids.shape[1]
    rows = []
    for position, label in zip(targets.positions, targets.labels, strict=True):
        row, index = divmod(int(position), length)
        if row == followed.sequence_index:
            shown = run.token_text(run.batch.token_ids[row, index])
            rows.append((int(position), index, f"`{run.token_text(label)}`", f"`{shown}`"))
    return f"""## Masking

{objective.selection.masking_rate.at(0):.0%} of the positions are targets; in a growing fraction of
the sequences, whole words are chosen. {corruption.mask:.0%} of the targets become `[MASK]`,
{corruption.random:.0%} a random token, and {corruption.keep:.0%} stay as they are. The choice is a
hash of seed, epoch, sequence and position, so nothing is stored, and step 0 always masks the same
positions. The targets in this sequence:

{_table(("target position in the batch", "in the sequence", "label", "input"), rows)}

The whole batch has M = {len(targets.positions)} targets; every step has the same number. We
follow the target at position {followed.position}. Its label is
**{run.token_text(followed.token_id)}**, and its input is `[MASK]`.
"""


def _hidden_states(run: FollowedRun) -> str:
    values, followed = run.values(), run.token
    names = [
        "embeddings.tokens",
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
        sequence = (
            value[min(followed.sequence_index, len(value) - 1)] if value.dim() == 3 else value
        )
        vector = sequence[min(followed.position, len(sequence) - 1)]
        rows.append((f"`{name}`", " x ".join(map(str, value.shape)), _numbers(vector)))
    weights = values["blocks.0.attention.weights"][followed.sequence_index, :, followed.position]
    heads = [
        (head, ", ".join(_attended(run, weights[head], index) for index in _largest(weights[head])))
        for head in range(len(weights))
    ]
    num_masked = int((weights == 0).all(0).sum())
    return f"""## Through the encoder

`[MASK]` is row {run.tokenizer.special_tokens.mask} of the embedding table. This table
shows the first four of the D numbers at our position, from the embedding to the output:

{_table(("hook point", "shape", "value"), rows)}

These are the largest attention weights of each head in the first block, from our position.
{num_masked} of the {weights.shape[1]} positions belong to other documents and have weight 0.
The model is untrained, so the weights are random:

{_table(("head", "attends to (weight)"), heads)}
"""


def _loss_and_update(run: FollowedRun) -> str:
    label = run.token.token_id
    before = run.probabilities()
    embedding_before = run.embedding()
    mean_loss, gradient = run.step(0)
    after_one_step = run.probabilities()
    update = [
        ("before", _numbers(embedding_before)),
        ("gradient", _numbers(run.embedding_gradient(gradient))),
        ("after", _numbers(run.embedding())),
    ]
    predictions = [
        _prediction(run, "before the step", before),
        _prediction(run, "after the step", after_one_step),
    ]
    for step_index in range(1, run.recipe.steps):
        run.step(step_index)
    predictions.append(_prediction(run, f"after {run.recipe.steps} steps", run.probabilities()))
    name = run.token_text(label)
    probability = float(before[label])
    optimiser = run.recipe.optimiser
    assert isinstance(optimiser, AdamWConfig)
    return f"""## Hidden states to loss

The masked LM head applies a dense layer, GELU and a norm to the hidden state at each target
position, and multiplies the result by the embedding table. This gives M x V =
{len(run.batch.targets["masked"].positions)} x {len(before)} logits. After the softmax,
*{name}* has the probability {probability:.4f}; in a uniform distribution it would be
{1 / len(before):.4f}. The loss at our position is -ln {probability:.4f} =
{-math.log(probability):.3f} nats. The loss of the step is the mean over all targets:
{mean_loss:.3f}.

## Loss to update

Every parameter gets a gradient. The embedding of *{name}* gets two contributions: from the
output layer, where it is the label, and from the input layer, at positions where it is the input.
In its first step, AdamW changes every number by the learning rate
({optimiser.learning_rate:g}), against the sign of its gradient:

{_table((f"embedding of *{name}*", "first four numbers"), update)}

The prediction at our position:

{_table(("", f"probability of *{name}*", "loss", "most probable"), predictions)}

The model memorises such a small text, which shows that loss, gradient and update work together.
"""


def _prediction(run: FollowedRun, when: str, probabilities: Tensor) -> tuple[str, str, str, str]:
    probability = float(probabilities[run.token.token_id])
    most_probable = run.token_text(int(probabilities.argmax()))
    return when, f"{probability:.3f}", f"{-math.log(probability):.2f}", f"`{most_probable}`"


def _unmasked_ids(run: FollowedRun) -> list[int]:
    """Return the token ids of the followed sequence before masking."""
    row, targets = run.token.sequence_index, run.batch.targets["masked"]
    ids = run.batch.token_ids[row].tolist()
    for position, label in zip(targets.positions, targets.labels, strict=True):
        if int(position) // len(ids) == row:
            ids[int(position) % len(ids)] = int(label)
    return ids


def _sentence_of(word: str) -> str:
    sentences = " ".join(TEXT.split()).replace(". ", ".\n").splitlines()
    return next(sentence for sentence in sentences if word in sentence.lower())


def _attended(run: FollowedRun, weights: Tensor, index: int) -> str:
    token = run.token_text(run.batch.token_ids[run.token.sequence_index, index])
    return f"`{token}` at {index} ({float(weights[index]):.3f})"


def _largest(values: Tensor, count: int = 3) -> list[int]:
    return values.topk(count).indices.tolist()


def _numbers(vector: Tensor) -> str:
    return " ".join(f"{float(x):.4f}" for x in vector.flatten()[:4]) + " ..."


def _table(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    titles = [str(name) for name in header]
    lines = [titles, ["---"] * len(titles), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    DOCUMENT.write_text(write(), encoding="utf-8")
    print(f"wrote {DOCUMENT}", file=sys.stderr)
