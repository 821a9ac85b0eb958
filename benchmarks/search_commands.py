"""Commands that measure search indexes."""

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.markdown_sections import DocumentOption
from benchmarks.options import publish
from bertwright.cli.output import JsonOption, log
from bertwright.core.files import atomic_file, output_lock

app = typer.Typer()


@app.command()
def retrieval(
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of indexes and results.")],
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
            help="Write the pairs of all synsets without queries, to train models, and end."
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
