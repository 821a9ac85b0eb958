"""``bertwright mine``: find hard negatives for the training of a retriever."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertwright.cli.options import PluginOption, PrecisionOption, refuse_options
from bertwright.cli.output import JsonOption, check_output_file, print_result
from bertwright.cli.verbs.retrieval.index import SearchModelOption

if TYPE_CHECKING:
    from bertwright.retrieval.mining import PositivePair

OTHER_TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".gz", ".txt")


def mine(
    context: typer.Context,
    index: Annotated[Path, typer.Argument(help="Folder that bertwright index has written.")],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            help="Training file to write (.jsonl).",
            callback=check_output_file,
        ),
    ],
    pairs: Annotated[
        Path | None,
        typer.Option(help="Table of queries and texts that belong to them, also .gz."),
    ] = None,
    text: Annotated[str, typer.Option(help="Column of the queries.")] = "text",
    pair: Annotated[str, typer.Option(help="Column of the texts that belong to them.")] = "pair",
    generator: Annotated[
        Path | None,
        typer.Option(
            help="Model with a decoder (finetune --task titles or text-to-text) that writes a "
            "query for each text of the index, instead of --pairs."
        ),
    ] = None,
    negatives: Annotated[
        int, typer.Option(min=1, help="Maximum number of negatives of a pair, a line each.")
    ] = 1,
    depth: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of texts to search for each query.")
    ] = 100,
    max_ratio: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Highest score of a negative, relative to the score of the text that belongs to "
            "the query.",
        ),
    ] = 0.95,
    margin: Annotated[
        float | None,
        typer.Option(min=0.0, help="Least difference from that score, instead of --max-ratio."),
    ] = None,
    keep_all: Annotated[
        bool,
        typer.Option("--keep-all", help="Take the best texts whatever their scores."),
    ] = False,
    label_with: Annotated[
        Path | None,
        typer.Option(
            help="Cross-encoder (finetune --task rank) whose probabilities are the scores; the "
            "column margin holds the differences of its logits, for output_type.loss=margin-mse."
        ),
    ] = None,
    model: SearchModelOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find hard negatives for pairs of a query and a text, and write a training file.

    The lines have the columns text, pair and negative, for finetune --task retrieval --negative
    negative.
    """
    from bertwright.core.errors import UserError
    from bertwright.core.files import atomic_file
    from bertwright.retrieval.generated_queries import generate_queries
    from bertwright.retrieval.mining import MiningConfig, mine_negatives
    from bertwright.retrieval.reranking import CrossEncoder
    from bertwright.retrieval.search_index import SearchIndex

    if pairs is None and generator is None:
        raise UserError("name a table of queries with --pairs, or a model with --generator")
    if pairs is not None and generator is not None:
        raise UserError("--generator writes the queries itself: leave --pairs out")
    if output.suffix in OTHER_TABLE_SUFFIXES:
        raise UserError(f"{output}: -o writes JSON lines: name a .jsonl file")
    if generator is not None:
        refuse_options(context, "these are columns of --pairs", "text", "pair")
    if keep_all or margin is not None:
        refuse_options(context, "--margin and --keep-all replace the ratio", "max_ratio")
    if keep_all and margin is not None:
        raise UserError("--keep-all takes texts whatever their scores: leave --margin out")
    ratio = None if keep_all or margin is not None else max_ratio
    config = MiningConfig(depth, negatives, ratio, margin)
    opened = SearchIndex.open(index, model, precision)
    cross_encoder = None if label_with is None else CrossEncoder.load(label_with, precision)
    num_pairs = num_mined = num_lines = 0
    with ExitStack() as stack:
        if pairs is not None:
            read_pairs = _pair_reader(pairs, text, pair)
        else:
            assert generator is not None
            file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "queries.jsonl"
            generated = generate_queries(opened, generator)
            _write_lines(file, ({"text": p.query, "pair": p.text} for p in generated))
            read_pairs = _pair_reader(file, "text", "pair")
        temporary = stack.enter_context(atomic_file(output))
        with open(temporary, "w", encoding="utf-8") as stream:
            for mined in mine_negatives(opened, read_pairs, config, cross_encoder):
                num_pairs, num_mined = num_pairs + 1, num_mined + bool(mined)
                for negative in mined:
                    num_lines += 1
                    stream.write(_line(_columns(asdict(negative))))
        if not num_pairs:
            raise UserError(
                f"{pairs or index} has no pairs of a query and a text: nothing was written"
            )
        if not num_lines:
            raise UserError(
                "no pair has a negative: raise --depth or --max-ratio, or add --keep-all; a text "
                "that belongs to a query must be found for it, unless --label-with scores it"
            )
    counts = {"pairs": num_pairs, "pairs_with_negatives": num_mined, "lines": num_lines}
    print_result({"file": str(output), **counts}, as_json)


def _columns(negative: dict[str, Any]) -> dict[str, Any]:
    columns = {"text": negative["query"], "pair": negative["positive"]}
    columns["negative"] = negative["negative"]
    return columns if negative["margin"] is None else {**columns, "margin": negative["margin"]}


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _write_lines(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    with open(file, "w", encoding="utf-8") as stream:
        stream.writelines(map(_line, rows))


def _pair_reader(file: Path, text: str, pair: str) -> "Callable[[], Iterator[PositivePair]]":
    from bertwright.retrieval.mining import PositivePair
    from bertwright.tasks.formats.tables import read_pairs

    return lambda: (PositivePair(*texts) for texts in read_pairs(file, text, pair))
