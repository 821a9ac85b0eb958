"""Commands that time bertwright and other libraries in interleaved rounds."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from benchmarks.markdown_sections import DocumentOption
from benchmarks.options import parse_numbers, publish
from bertwright.cli.output import JsonOption, check_output_file, log

app = typer.Typer()


@app.command()
def pretrain(
    sizes: Annotated[str, typer.Option(help="Sizes of BERT.")] = "tiny,mini,small,base",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 7,
    alone: Annotated[bool, typer.Option("--alone", help="Time bertwright only.")] = False,
    batch_tokens: Annotated[int, typer.Option(min=8, help="Tokens per step.")] = 4096,
    sequence_length: Annotated[int, typer.Option(min=8, help="Sequence length.")] = 128,
    data: Annotated[
        Path | None, typer.Option(help="Prepared data folder, to time the loading of batches too.")
    ] = None,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pre-training steps per second, against Transformers by default and at its fastest."""
    from benchmarks.pretraining import compare as pretraining
    from benchmarks.pretraining.workload import Workload

    workloads = [Workload(size, batch_tokens, sequence_length) for size in sizes.split(",")]
    results = pretraining.compare(workloads, rounds, alone, data, log)
    publish("pretrain", results, pretraining.COLUMNS, document, as_json)


@app.command()
def minutes(
    study: Annotated[Path, typer.Argument(help="Study of equal time, as a YAML file.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Study to write, with steps.", callback=check_output_file
        ),
    ],
    folder: Annotated[Path, typer.Option(help="Folder of the study, which keeps its text.")],
    rounds: Annotated[int, typer.Option(min=3, help="Number of interleaved rounds.")] = 7,
) -> None:
    """Turn a study's equal time into steps, by the speed of every arm on this machine."""
    from benchmarks.equal_minutes import with_measured_steps
    from bertwright.core.files import write_text
    from bertwright.runtime.markdown_report import run_provenance
    from bertwright.studies.study import Study, to_yaml

    measured = with_measured_steps(Study.load(study), folder, rounds, log)
    write_text(output, f"# {run_provenance()}\n{to_yaml(measured)}")


@app.command()
def budget(
    data: Annotated[Path, typer.Option(help="Prepared data folder.")],
    recipe: Annotated[str, typer.Option(help="Recipe to train.")] = "modern-tiny",
    seconds: Annotated[float, typer.Option(min=1, help="Budget of every run, in seconds.")] = 300.0,
    num_runs: Annotated[int, typer.Option(min=1, help="Number of runs.")] = 3,
    other_checkout: Annotated[
        Path | None, typer.Option(help="Another checkout, to compare with on a quiet machine.")
    ] = None,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time and steps of training under a budget, beside busy processes and on a quiet machine."""
    from benchmarks import budgets

    results = budgets.compare(data, recipe, seconds, num_runs, other_checkout, log)
    publish("budget", results, budgets.COLUMNS, document, as_json)


@app.command()
def checkouts(
    other_checkout: Annotated[Path, typer.Argument(help="Another checkout of bertwright.")],
    sizes: Annotated[str, typer.Option(help="Sizes of BERT.")] = "tiny,mini,small,base",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 7,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Training steps and embedding of this checkout, against another one."""
    from benchmarks import variations

    pair = variations.checkout_variations(other_checkout)
    results = variations.compare(pair, sizes.split(","), True, rounds, log)
    publish("before", results, variations.COLUMNS, document, as_json)


@app.command()
def flags(
    sizes: Annotated[str, typer.Option(help="Sizes of BERT.")] = "tiny,mini,small",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 7,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Training steps compiled with our flags, against -march=native."""
    from benchmarks import variations

    pair = variations.compiler_flag_variations()
    results = variations.compare(pair, sizes.split(","), False, rounds, log)
    publish("flags", results, variations.COLUMNS, document, as_json)


@app.command()
def embed(
    text: Annotated[
        Path | None,
        typer.Option(help="Text file, one sentence per line; by default Python's documentation."),
    ] = None,
    num_sentences: Annotated[int, typer.Option(min=1, help="Number of sentences.")] = 2000,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    alone: Annotated[bool, typer.Option("--alone", help="Time bertwright only.")] = False,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sentences per second of all-MiniLM-L6-v2, against sentence-transformers and onnxruntime."""
    from benchmarks.embedding import compare as embedding

    sentences = embedding.sample_sentences(embedding.load_lines(text), num_sentences)
    results = embedding.compare(embedding.checkpoint_folder(), sentences, rounds, alone, log)
    publish("embed", results, embedding.COLUMNS, document, as_json)


@app.command("one-text")
def single_text(
    num_tokens: Annotated[
        int, typer.Option(min=3, help="Tokens of the text, with special tokens.")
    ] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 15,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time to embed one short text with all-MiniLM-L6-v2 in int8 ONNX, against onnxruntime."""
    from benchmarks.embedding import compare as embedding
    from benchmarks.embedding import single_text as latency

    results = latency.compare(embedding.checkpoint_folder(), num_tokens, rounds)
    publish("one-text", results, latency.COLUMNS, document, as_json)


@app.command()
def prepare(
    text: Annotated[
        list[str] | None,
        typer.Option(help="Files or folders of text; by default the sample text."),
    ] = None,
    kinds: Annotated[str, typer.Option(help="Kinds of tokenizers.")] = "wordpiece,byte-bpe",
    processes: Annotated[int, typer.Option(min=1, help="Worker processes.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    alone: Annotated[bool, typer.Option("--alone", help="Time bertwright only.")] = False,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Megabytes of text prepared per second, against Transformers' own script."""
    from benchmarks.preparation import compare as preparation

    results = preparation.compare(text or [], kinds.split(","), processes, rounds, alone, log)
    publish("prepare", results, preparation.COLUMNS, document, as_json)


@app.command()
def attention(
    sequence_lengths: Annotated[
        str, typer.Option(help="Sequence lengths.")
    ] = "128,256,512,1024,2048,4096",
    batch_tokens: Annotated[int, typer.Option(min=8, help="Tokens per round.")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time of attention per token by sequence length, for every mixer."""
    from benchmarks import attention

    results = attention.compare(
        parse_numbers("--sequence-lengths", sequence_lengths, int), batch_tokens, rounds, log
    )
    publish("attention", results, attention.COLUMNS, document, as_json)


@app.command()
def recipes(
    systems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SYSTEM ...]", help="Systems, such as bert or gpt-2; all by default."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Prepared data folder; recipes that need other data, and all without it, use "
            "the sample text or a synthetic one."
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="Size of all recipes.")] = "mini",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    eager: Annotated[bool, typer.Option("--eager", help="Do not compile.")] = False,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Training speed of every recipe, against plain masked language modelling."""
    from benchmarks.recipes import compare as recipe_speed
    from bertwright.recipes import Recipe
    from experiments.recipe_texts import text_for_recipe

    with TemporaryDirectory() as work:

        def find_corpus(system: str) -> tuple[Path, str]:
            text = text_for_recipe(Recipe.load(f"{system}-{size}"), Path(work), data)
            return text.data, text.name

        results = recipe_speed.compare(systems or [], size, find_corpus, rounds, not eager, log)
    publish("recipes", results, recipe_speed.COLUMNS, document, as_json)


@app.command()
def memory(
    memory_lengths: Annotated[str, typer.Option(help="Memory lengths.")] = "200,400,800",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speed of reading with memory, against recomputing a window for every token."""
    from benchmarks import memory as memory_speed

    lengths = parse_numbers("--memory-lengths", memory_lengths, int)
    results = memory_speed.compare(lengths, rounds, log)
    publish("memory", results, memory_speed.COLUMNS, document, as_json)


@app.command()
def scale(
    data: Annotated[Path, typer.Option(help="Prepared sample of the text, by one process.")],
    recipe: Annotated[str, typer.Option(help="Recipe, with the overrides that follow it.")],
    overrides: Annotated[list[str] | None, typer.Argument(help="Changes of the recipe.")] = None,
    text_gigabytes: Annotated[float, typer.Option(help="Size of the text.")] = 1000.0,
    megabytes_per_second: Annotated[
        float | None,
        typer.Option(help="Of one process, as `prepare` measures; by default of the sample."),
    ] = None,
    gpu: Annotated[str, typer.Option(help="GPU, by its name in the table of count.")] = "h100",
    utilisation: Annotated[float, typer.Option(help="Fraction of its peak reached.")] = 0.4,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """The arithmetic of much text and a large encoder on 1 to 64 devices; measures nothing."""
    from benchmarks import scale as arithmetic
    from bertwright.data.shards.dataset import Dataset
    from bertwright.recipes import Recipe

    resolved = Recipe.load(recipe, *(overrides or []))
    sample = Dataset.open(data)
    text = arithmetic.text(sample, text_gigabytes * 1e9, megabytes_per_second)
    publish("scale text", [text], arithmetic.TEXT_COLUMNS, document, as_json)
    devices = arithmetic.devices(resolved, text["tokens"], gpu, utilisation)
    publish("scale devices", devices, arithmetic.DEVICE_COLUMNS, document, as_json)


@app.command()
def analyse(
    model: Annotated[
        str, typer.Option(help="Recipe of a randomly initialised model.")
    ] = "bert-base",
    texts: Annotated[int, typer.Option(min=1, help="Number of texts of 128 tokens.")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Texts per second of the attention analyses, against the forward pass alone."""
    from benchmarks import analysis as analysis_speed

    result = analysis_speed.compare(model, texts, rounds, log)
    publish("analyse", [result], analysis_speed.COLUMNS, document, as_json)


@app.command()
def predict(
    text: Annotated[
        Path | None, typer.Option(help="Text file; by default Python's documentation.")
    ] = None,
    texts: Annotated[int, typer.Option(min=100, help="Number of short texts to sample.")] = 100_000,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 3,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predictions per second of a fine-tuned model, against embeddings of the same texts."""
    from benchmarks import prediction
    from benchmarks.embedding import compare as embedding

    result = prediction.compare(embedding.load_lines(text), texts, rounds, log)
    publish("predict", [result], prediction.COLUMNS, document, as_json)


@app.command()
def serve(
    model: Annotated[
        Path | None, typer.Argument(help="Model folder; by default all-MiniLM-L6-v2.")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Text file; by default Python's documentation.")
    ] = None,
    num_clients: Annotated[
        int | None,
        typer.Option(min=1, help="Concurrent clients; by default 32, or 64 with --soak-seconds."),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Number of sentences.")] = 2000,
    texts_per_request: Annotated[str, typer.Option(help="Texts per request.")] = "1,8,32",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    soak_seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Overload the server for this long instead."),
    ] = None,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Texts per second of a server, against the same model without one."""
    from benchmarks.embedding import compare as embedding
    from benchmarks.serving import soak, throughput

    folder = model or embedding.checkpoint_folder()
    sentences = embedding.sample_sentences(embedding.load_lines(text), texts)
    if soak_seconds is not None:
        result = soak.run_soak(folder, sentences, num_clients or 64, soak_seconds, log)
        publish("serve --soak", [result], soak.COLUMNS, document, as_json)
        return
    sizes = parse_numbers("--texts-per-request", texts_per_request, int)
    results = throughput.compare(folder, sentences, num_clients or 32, sizes, rounds, log)
    publish("serve", results, throughput.COLUMNS, document, as_json)


@app.command()
def prune(
    pruned_fractions: Annotated[
        str, typer.Option(help="Fractions of heads and units to prune.")
    ] = "0.25,0.5",
    batch_sizes: Annotated[str, typer.Option(help="Texts per batch.")] = "1,32",
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 15,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time of all-MiniLM-L6-v2 with pruned heads and units, against its multiplications."""
    from benchmarks import pruning
    from benchmarks.embedding import compare as embedding

    fractions = parse_numbers("--pruned-fractions", pruned_fractions, float)
    sizes = parse_numbers("--batch-sizes", batch_sizes, int)
    results = pruning.compare(embedding.checkpoint_folder(), fractions, sizes, rounds)
    publish("prune", results, pruning.COLUMNS, document, as_json)


@app.command()
def exports(
    model: Annotated[
        Path | None, typer.Option(help="Model folder of an encoder; default all-MiniLM-L6-v2.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="File with a text per line; default a few sentences.")
    ] = None,
    most: Annotated[int, typer.Option("--max-examples", help="Read at most N texts.")] = 200,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Vectors of onnxruntime, transformers.js and llama.cpp against those of embed."""
    from benchmarks import exports as comparison
    from benchmarks.embedding import compare as embedding
    from bertwright.core.files import read_text

    lines = read_text(texts).splitlines() if texts is not None else comparison.SAMPLE_TEXTS
    results = comparison.compare(
        model or embedding.checkpoint_folder(), list(filter(None, lines))[:most], log
    )
    publish("exports", results, comparison.COLUMNS, document, as_json)


@app.command()
def packing(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL ...]",
            help="Model folders, or recipes for random weights; by default bert-mini and MiniLM.",
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="Task.")] = "sst-2",
    data: Annotated[Path, typer.Option(help="Data folder of the task.")] = Path(
        "../shared/data/glue/SST-2"
    ),
    batch_sizes: Annotated[str, typer.Option(help="Examples per step.")] = "32,64",
    max_examples: Annotated[
        int | None, typer.Option(min=2, help="Train on the first N examples.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each kind per round.")] = 200,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved rounds.")] = 5,
    seeds: Annotated[
        int, typer.Option(min=0, help="Seeds of the comparison of scores; 0 for none.")
    ] = 0,
    epochs: Annotated[int, typer.Option(min=0, help="Epochs of the comparison of scores.")] = 1,
    eager: Annotated[bool, typer.Option("--eager", help="Do not compile.")] = False,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Speed and scores of fine-tuning with packed, padded and bucketed batches."""
    from benchmarks import packing as comparison
    from benchmarks.embedding.compare import checkpoint_folder

    sizes = parse_numbers("--batch-sizes", batch_sizes, int)
    names = models or ["bert-mini", str(checkpoint_folder())]
    workloads = [
        comparison.Workload(name, task, str(data), size, not eager, max_examples)
        for name in names
        for size in sizes
    ]
    if seeds:
        settings = {"epochs": epochs}
        scores = [
            comparison.compare_scores(workload, seeds, settings, log)
            for workload in workloads[:: len(sizes)]
        ]
        publish("packing scores", scores, comparison.SCORE_COLUMNS, document, as_json)
        return
    results = comparison.compare_times(workloads, steps, rounds, log)
    publish("packing", results, comparison.TIME_COLUMNS, document, as_json)
