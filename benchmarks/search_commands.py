"""Commands that measure search indexes."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.markdown_sections import DocumentOption
from benchmarks.options import parse_numbers, publish
from bertwright.cli.output import JsonOption, check_output_file, check_output_folder, log
from bertwright.core.files import atomic_file, output_lock

app = typer.Typer()


@app.command()
def retrieval(
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", help="Folder of indexes and results.", callback=check_output_folder
        ),
    ],
    models: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[MODEL...]", help="Model folders, of any representation."),
    ] = None,
    data: Annotated[Path, typer.Option(help="Folder of WordNet.")] = Path("../shared/data/wordnet"),
    num_queries: Annotated[int, typer.Option(min=2, help="Number of queries per task.")] = 1000,
    million: Annotated[
        bool, typer.Option("--million", help="Measure the indexing of many texts instead.")
    ] = False,
    num_texts: Annotated[
        int, typer.Option(min=1, help="Number of texts of --million.")
    ] = 1_000_000,
    training_pairs: Annotated[
        Path | None,
        typer.Option(
            help="Write the pairs of all synsets without queries, to train models, and end.",
            callback=check_output_file,
        ),
    ] = None,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score, size and speed of search indexes: words from glosses, glosses from examples."""
    from benchmarks.retrieval import compare
    from benchmarks.retrieval import million as many_texts
    from benchmarks.retrieval.systems import systems_of
    from bertwright.retrieval import wordnet

    synsets = wordnet.load_synsets(data)
    if training_pairs is not None:
        with atomic_file(training_pairs) as file, open(file, "w", encoding="utf-8") as stream:
            stream.write("text\tpair\n")
            stream.writelines(f"{a}\t{b}\n" for a, b in wordnet.training_pairs(synsets))
        return
    output.mkdir(parents=True, exist_ok=True)
    systems = systems_of(models or (), with_variants=not million)
    with output_lock(output):
        if million:
            rows = many_texts.compare(synsets, systems, num_texts, output, log)
            publish("retrieval --million", rows, many_texts.COLUMNS, document, as_json)
            return
        tasks = wordnet.retrieval_tasks(synsets, num_queries)
        rows = compare.compare(tasks, systems, output, log)
    publish("retrieval", rows, compare.COLUMNS, document, as_json)


@app.command()
def vectors(
    models: Annotated[
        list[Path], typer.Argument(help="Model folders; the others are compared with the first.")
    ],
    data: Annotated[
        Path, typer.Option(help="Folder of the data sets glue, sick and wordnet.")
    ] = Path("../shared/data"),
    sizes: Annotated[
        bool,
        typer.Option(
            "--sizes", help="Compare dimensions and types of the vectors of each model instead."
        ),
    ] = False,
    dimensions: Annotated[
        str, typer.Option(help="Dimensions of --sizes; by default halves of all.")
    ] = "",
    num_queries: Annotated[
        int, typer.Option(min=0, help="Queries of --sizes for glosses in WordNet; 0 for none.")
    ] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Number of interleaved timing rounds.")] = 5,
    name: Annotated[
        str | None, typer.Option(help="Name of the section; by default that of the first model.")
    ] = None,
    document: DocumentOption = None,
    as_json: JsonOption = False,
) -> None:
    """Similarity of sentences by their vectors: Spearman, speed, dimensions and bits."""
    from benchmarks import text_vectors
    from bertwright.retrieval import wordnet

    section = f"vectors {name or models[0].name}"
    if not sizes:
        rows = text_vectors.compare_models(models, data, rounds)
        publish(section, rows, text_vectors.MODEL_COLUMNS, document, as_json)
        return
    task = None
    if num_queries:
        synsets = wordnet.load_synsets(data / "wordnet")
        task = wordnet.retrieval_tasks(synsets, num_queries)[1]
    numbers = parse_numbers("--dimensions", dimensions, int) if dimensions else []
    rows = [
        row for model in models for row in text_vectors.compare_sizes(model, data, numbers, task)
    ]
    columns = dict(text_vectors.SIZE_COLUMNS)
    if task is None:
        del columns["ndcg@10"]
    publish(f"{section} --sizes", rows, columns, document, as_json)
