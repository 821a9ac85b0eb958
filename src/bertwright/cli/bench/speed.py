"""How fast things are, in turns with the peers on this machine."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bertwright.cli.bench.publishing import numbers_of, publish
from bertwright.cli.output import AsJson, Document, say

app = typer.Typer()


@app.command()
def pretrain(
    sizes: Annotated[str, typer.Option(help="Sizes of BERT.")] = "tiny,mini,small,base",
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every contestant takes.")] = 7,
    alone: Annotated[bool, typer.Option("--alone", help="Leave the peers out.")] = False,
    batch_tokens: Annotated[int, typer.Option(min=8, help="Tokens of a step.")] = 4096,
    length: Annotated[int, typer.Option(min=8, help="Tokens of a row.")] = 128,
    data: Annotated[
        Path | None, typer.Option(help="A data folder: how long its batches take to come.")
    ] = None,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Steps of pre-training, against Transformers as a user runs it and at its best."""
    from bertwright.bench import pretraining
    from bertwright.bench.workload import Workload

    workloads = [Workload(size, batch_tokens, length) for size in sizes.split(",")]
    results = pretraining.compare(workloads, rounds, alone, data, say)
    publish("pretrain", results, pretraining.COLUMNS, document, as_json)


@app.command()
def budget(
    data: Annotated[Path, typer.Option(help="A data folder that prepare wrote.")],
    recipe: Annotated[str, typer.Option(help="What is trained.")] = "modern-tiny",
    seconds: Annotated[float, typer.Option(min=1, help="The budget of every run.")] = 300.0,
    times: Annotated[int, typer.Option(min=1, help="Runs of every contestant.")] = 3,
    before: Annotated[
        Path | None, typer.Option(help="Another checkout, to compare with on a quiet machine.")
    ] = None,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Whether a budget is kept, beside busy processes and on a quiet machine, and its steps."""
    from bertwright.bench import budgets

    results = budgets.compare(data, recipe, seconds, times, before, say)
    publish("budget", results, budgets.COLUMNS, document, as_json)


@app.command()
def before(
    checkout: Annotated[Path, typer.Argument(help="Another checkout of this program.")],
    sizes: Annotated[str, typer.Option(help="Sizes of BERT.")] = "tiny,mini,small,base",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of either checkout.")] = 7,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Training steps and embedding of this checkout, in turns with another one's."""
    from bertwright.bench import variations

    contestants = variations.of_checkouts(checkout)
    results = variations.compare(contestants, sizes.split(","), True, rounds, say)
    publish("before", results, variations.COLUMNS, document, as_json)


@app.command()
def flags(
    sizes: Annotated[str, typer.Option(help="Sizes of BERT.")] = "tiny,mini,small",
    rounds: Annotated[int, typer.Option(min=1, help="Turns of either set of flags.")] = 7,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Training steps compiled with our flags, in turns with -march=native."""
    from bertwright.bench import variations

    contestants = variations.of_flags()
    results = variations.compare(contestants, sizes.split(","), False, rounds, say)
    publish("flags", results, variations.COLUMNS, document, as_json)


@app.command()
def embed(
    text: Annotated[
        Path | None,
        typer.Option(help="A text file, a sentence a line; none: Python's own documentation."),
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="How many of its lines.")] = 2000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every contestant takes.")] = 5,
    alone: Annotated[bool, typer.Option("--alone", help="Leave the peers out.")] = False,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Sentences per second of all-MiniLM-L6-v2, against sentence-transformers and onnxruntime."""
    from bertwright.bench import embedding

    lines = embedding.lines_of(text)
    chosen = embedding.choose_sentences(lines, sentences)
    results = embedding.compare(embedding.checkpoint_folder(), chosen, rounds, alone, say)
    publish("embed", results, embedding.COLUMNS, document, as_json)


@app.command("one-text")
def one_text(
    pieces: Annotated[int, typer.Option(min=3, help="Of the text, special ones included.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every contestant takes.")] = 15,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """How long one short text takes all-MiniLM-L6-v2 as a graph in 8 bits, against onnxruntime
    alone."""
    from bertwright.bench import embedding
    from bertwright.bench import one_text as bench

    results = bench.compare(embedding.checkpoint_folder(), pieces, rounds)
    publish("one-text", results, bench.COLUMNS, document, as_json)


@app.command()
def prepare(
    text: Annotated[
        list[str] | None,
        typer.Option(help="Files or folders of text; none: the embedded sample."),
    ] = None,
    kinds: Annotated[str, typer.Option(help="Kinds of tokenizers.")] = "wordpiece,byte-bpe",
    processes: Annotated[int, typer.Option(min=1, help="Processes of either side.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every contestant takes.")] = 5,
    alone: Annotated[bool, typer.Option("--alone", help="Leave the peer out.")] = False,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Megabytes of text prepared per second, against Transformers' own script."""
    from bertwright.bench import preparation

    results = preparation.compare(text or [], kinds.split(","), processes, rounds, alone, say)
    publish("prepare", results, preparation.COLUMNS, document, as_json)


@app.command()
def attention(
    lengths: Annotated[str, typer.Option(help="Lengths of rows.")] = "128,256,512,1024,2048,4096",
    batch_tokens: Annotated[int, typer.Option(min=8, help="Tokens of a turn.")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that every mixer takes.")] = 5,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Time of attention per token against the length of a row, mixer by mixer."""
    from bertwright.bench import attention

    results = attention.compare(numbers_of("--lengths", lengths, int), batch_tokens, rounds, say)
    publish("attention", results, attention.COLUMNS, document, as_json)


@app.command()
def recipes(
    systems: Annotated[
        list[str] | None, typer.Argument(metavar="[SYSTEM ...]", help="Only these: bert, gpt-2 ...")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="A prepared data folder; for recipes that need more than it holds, and without "
            "it, the sample text or one made to order."
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="Of all of them.")] = "mini",
    rounds: Annotated[int, typer.Option(min=1, help="Turns that either side takes.")] = 5,
    eager: Annotated[bool, typer.Option("--eager", help="Without compiling.")] = False,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Training steps of every recipe, against plain masked language modelling."""
    from bertwright.bench import recipe_speed
    from bertwright.recipes import Recipe
    from bertwright.studies.made_to_order import text_for

    with TemporaryDirectory() as work:

        def text_of(system: str) -> tuple[Path, str]:
            text = text_for(Recipe.load(f"{system}-{size}"), Path(work), data)
            return text.data, text.name

        results = recipe_speed.compare(systems or [], size, text_of, rounds, not eager, say)
    publish("recipes", results, recipe_speed.COLUMNS, document, as_json)


@app.command()
def memory(
    lengths: Annotated[str, typer.Option(help="How far back is seen.")] = "200,400,800",
    rounds: Annotated[int, typer.Option(min=1, help="Turns that either side takes.")] = 5,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Reading with memory, against windows that are computed anew for every token."""
    from bertwright.bench import remembering

    results = remembering.compare(numbers_of("--lengths", lengths, int), rounds, say)
    publish("memory", results, remembering.COLUMNS, document, as_json)


@app.command()
def analyse(
    model: Annotated[
        str, typer.Option(help="A recipe, whose parameters are as drawn.")
    ] = "bert-base",
    texts: Annotated[int, typer.Option(min=1, help="Of 128 places each.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that either side takes.")] = 5,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Texts per second whose attention is looked at, against reading them alone."""
    from bertwright.bench import analysing

    result = analysing.compare(model, texts, rounds, say)
    publish("analyse", [result], analysing.COLUMNS, document, as_json)


@app.command()
def predict(
    text: Annotated[
        Path | None, typer.Option(help="A text file; none: Python's own documentation.")
    ] = None,
    texts: Annotated[
        int, typer.Option(min=100, help="How many short texts are cut of it.")
    ] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Turns that either side takes.")] = 3,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Answers per second of a fine-tuned model, against the vectors of the same texts."""
    from bertwright.bench import embedding, predicting

    result = predicting.compare(embedding.lines_of(text), texts, rounds, say)
    publish("predict", [result], predicting.COLUMNS, document, as_json)


@app.command()
def serve(
    model: Annotated[
        Path | None, typer.Argument(help="A model folder; none: all-MiniLM-L6-v2.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="A text file; none: Python's own documentation.")
    ] = None,
    clients: Annotated[
        int | None, typer.Option(min=1, help="At the same time; none: 32, and 64 of --soak.")
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="How many of its lines.")] = 2000,
    requests: Annotated[str, typer.Option(help="Texts of a request.")] = "1,8,32",
    rounds: Annotated[int, typer.Option(min=1, help="Turns that either side takes.")] = 5,
    soak: Annotated[
        float | None,
        typer.Option(min=1, help="Instead, so many seconds of more than it can bear."),
    ] = None,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """Texts per second through a server, against the same model without one."""
    from bertwright.bench import embedding
    from bertwright.bench.serving import soak as soaking
    from bertwright.bench.serving import throughput

    folder = model or embedding.checkpoint_folder()
    chosen = embedding.choose_sentences(embedding.lines_of(text), texts)
    if soak is not None:
        result = soaking.soak(folder, chosen, clients or 64, soak, say)
        publish("serve --soak", [result], soaking.COLUMNS, document, as_json)
        return
    sizes = numbers_of("--requests", requests, int)
    results = throughput.compare(folder, chosen, clients or 32, sizes, rounds, say)
    publish("serve", results, throughput.COLUMNS, document, as_json)


@app.command()
def prune(
    gone: Annotated[str, typer.Option(help="Shares of heads and units.")] = "0.25,0.5",
    texts: Annotated[str, typer.Option(help="That are read at once.")] = "1,32",
    rounds: Annotated[int, typer.Option(min=1, help="Turns that either takes.")] = 15,
    document: Document = None,
    as_json: AsJson = False,
) -> None:
    """How long all-MiniLM-L6-v2 takes without some of its heads and units, against the arithmetic
    that is left."""
    from bertwright.bench import embedding, pruning

    shares, numbers = numbers_of("--gone", gone, float), numbers_of("--texts", texts, int)
    results = pruning.compare(embedding.checkpoint_folder(), shares, numbers, rounds)
    publish("prune", results, pruning.COLUMNS, document, as_json)
