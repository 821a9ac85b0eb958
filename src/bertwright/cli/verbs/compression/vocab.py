"""``bertwright vocab``: show, extend and prune the vocabulary of a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bertwright.cli.options import (
    ColumnOption,
    ComputingCommand,
    FormatOption,
    ModelArgument,
    OutputOption,
    PluginOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, log, print_result
from bertwright.cli.texts import iter_texts
from bertwright.core.errors import UserError

if TYPE_CHECKING:
    from bertwright.data.tokenization.tokenizer import Tokenizer
    from bertwright.models.text_model import TextModel
    from bertwright.tasks.formats.examples import Examples

app = typer.Typer(help="Show, extend and prune the vocabulary of a model.", no_args_is_help=True)

TextOption = Annotated[
    list[str] | None,
    typer.Option(help="Files, folders or patterns, as prepare reads; may be repeated."),
]

NUM_SHOWN_TOKENS = 10
"""Number of new tokens that are printed."""


@app.command(cls=ComputingCommand)
def show(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Model or tokenizer folder.")],
    text: TextOption = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the kind, the size and the special tokens of a vocabulary.

    With --text, show how it divides that text: tokens per word, unknown tokens, the most fragmented
    words with their tokens, and unused tokens.
    """
    from bertwright.data.tokenization.extension.word_counts import count_words
    from bertwright.data.tokenization.vocabulary_report import (
        describe_segmentation,
        describe_vocabulary,
    )

    if not text:
        refuse_options(context, "no text is named", "column", "format")
    tokenizer = _load_tokenizer(model)
    result = describe_vocabulary(tokenizer)
    if text:
        words = count_words(tokenizer, iter_texts(text, column, format))
        result |= describe_segmentation(tokenizer, words)
    print_result(result, as_json)


@app.command(cls=ComputingCommand)
def extend(
    model: ModelArgument,
    output: OutputOption,
    text: Annotated[
        list[str],
        typer.Option(help="Files, folders or patterns, as prepare reads; may be repeated."),
    ],
    add: Annotated[int, typer.Option(help="Maximum number of tokens to add.")],
    init: Annotated[
        str,
        typer.Option(
            help="Rows of new tokens: mean of the rows of their former tokens; length, the same "
            "weighted by characters; average of all rows, with little noise; or random."
        ),
    ] = "mean",
    seed: Annotated[int, typer.Option(help="Seed of noise and random rows.")] = 0,
    column: ColumnOption = "text",
    format: FormatOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add the tokens to the vocabulary that shorten a text most.

    They become part of the tokenizer's model, as if it had been trained with them: text without
    their characters has the same tokens as before. Then train on with 'prepare' and 'pretrain
    --from'.
    """
    from bertwright.compression.vocabulary.extension import extend_vocabulary
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.interop.loading import load

    require_new_folder(output)
    original = load(model, "float32")
    extended = extend_vocabulary(original, iter_texts(text, column, format), add, init, seed)
    with atomic_folder(output) as folder:
        extended.model.save(folder)
    extension, words = extended.extension, extended.words
    num_added = len(extension.token_ids)
    if num_added < add:
        log(f"bertwright: {num_added:,} of {add:,} tokens were added: no other shortens this text")
    tokens = [extension.tokenizer.id_to_token(n) for n in extension.token_ids]
    result = {
        "model": str(output),
        "kind": extension.tokenizer.kind,
        "added": num_added,
        "size": extension.tokenizer.vocab_size,
        "tokens_before": extension.num_tokens_before,
        "tokens": extension.num_tokens,
        "shorter_by": 1 - extension.num_tokens / extension.num_tokens_before,
        "tokens_per_word_before": extension.num_tokens_before / max(words.num_words, 1),
        "tokens_per_word": extension.num_tokens / max(words.num_words, 1),
        "new_tokens": tokens if as_json else " ".join(tokens[:NUM_SHOWN_TOKENS]),
    }
    print_result(result, as_json)


@app.command(cls=ComputingCommand)
def prune(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="Model folder, pre-trained or fine-tuned.")],
    output: OutputOption,
    text: TextOption = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder with examples of the task of a fine-tuned model."),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove the tokens that texts do not use.

    Single characters and bytes stay. Outputs for texts that use the kept tokens do not change.
    """
    from bertwright.compression.vocabulary.pruning import prune_vocabulary
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.interop.loading import load

    if not text:
        refuse_options(context, "no text is named", "column", "format")
    require_new_folder(output)
    large = load(model, "float32")
    examples = _task_examples(large, text or [], data)
    small = prune_vocabulary(large, iter_texts(text or [], column, format), examples)
    with atomic_folder(output) as folder:
        small.save(folder)
    sizes = {"tokens": small.tokenizer.vocab_size, "of": large.tokenizer.vocab_size}
    print_result({"model": str(output), **sizes}, as_json)


def _load_tokenizer(folder: Path) -> "Tokenizer":
    """Return the tokenizer of a folder of bertwright or of Hugging Face."""
    from bertwright.data.tokenization.tokenizer import Tokenizer
    from bertwright.interop.huggingface import is_huggingface_folder
    from bertwright.models.saving import is_model_folder

    if is_huggingface_folder(folder) and not is_model_folder(folder):
        from bertwright.interop.loading import load

        return load(folder, "float32").tokenizer
    return Tokenizer.load(folder)


def _task_examples(model: "TextModel", texts: list[str], data: Path | None) -> "Examples":
    """Return the examples of the model's task."""
    from bertwright.tasks.data.task_data import TaskData
    from bertwright.tasks.fine_tuned_model import FineTunedModel

    if not texts and data is None:
        raise UserError("no text to keep tokens for: name files with --text, or --data of a task")
    if data is None:
        return ()
    if not isinstance(model, FineTunedModel):
        raise UserError("--data is for a fine-tuned model: name files with --text instead")
    _, train_examples, dev_examples = TaskData(model.task, data).load_splits()
    return [*train_examples, *dev_examples]
