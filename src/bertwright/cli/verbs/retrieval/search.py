"""``bertwright search``: find the texts of an index that belong to a query."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    PluginOption,
    PrecisionOption,
    refuse_options,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.verbs.retrieval.index import SearchModelOption

if TYPE_CHECKING:
    from bertwright.retrieval.search_index import SearchHit, SearchIndex

QUERIES_AT_ONCE = 256
SHOWN_CHARACTERS = 100


def search(
    context: typer.Context,
    index: Annotated[Path, typer.Argument(help="Folder that bertwright index has written.")],
    query: Annotated[
        list[str] | None, typer.Argument(metavar="[QUERY...]", help="One or several queries.")
    ] = None,
    top: Annotated[
        int, typer.Option("-n", "--top", min=1, max=10_000, help="Number of texts per query.")
    ] = 10,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="File of queries, in the formats of bertwright index; the texts found for each "
            "are printed as a line of JSON."
        ),
    ] = None,
    evaluate: Annotated[
        bool,
        typer.Option(
            "--evaluate",
            help="Print nDCG, MRR and recall instead; the file of queries is a table with a column "
            "relevant of the ids that should be found.",
        ),
    ] = False,
    rerank: Annotated[
        Path | None,
        typer.Option(help="Cross-encoder (finetune --task rank) that sorts the best texts again."),
    ] = None,
    rerank_depth: Annotated[
        int, typer.Option(min=1, max=10_000, help="Number of texts to sort again.")
    ] = 50,
    model: SearchModelOption = None,
    query_model: Annotated[
        Path | None,
        typer.Option(
            help="Smaller model that encodes the queries: a student of the index's model, trained "
            "by pretrain --distillation leaf."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the texts of an index that belong to a query."""
    from bertwright.core.errors import UserError
    from bertwright.retrieval.search_index import SearchIndex

    if not query and queries is None:
        raise UserError("search needs a query, or a file of them with --queries")
    if query and queries is not None:
        raise UserError(f"--queries reads the queries from {queries}: leave {query[0]!r} out")
    if queries is None:
        refuse_options(context, "this is for --queries", "evaluate", "column", "format")
    elif evaluate:
        refuse_options(context, "--evaluate scores a fixed number of texts", "top")
    if rerank is None:
        refuse_options(context, "this is for --rerank", "rerank_depth")
    if any(not text.strip() for text in query or ()):
        raise UserError("a query is empty: write what to search for")
    if model is not None and query_model is not None:
        raise UserError("--query-model replaces --model, which is not read: leave --model out")
    opened = SearchIndex.open(index, model, precision, query_model)
    reranker = None
    if rerank is not None:
        from bertwright.retrieval.reranking import CrossEncoder

        reranker = CrossEncoder.load(rerank, precision)

    def find(texts: Sequence[str], number: int) -> "list[list[SearchHit]]":
        return opened.search(texts, number, reranker=reranker, rerank_depth=rerank_depth)

    if queries is not None and evaluate:
        print_result(_evaluate(opened, find, queries, column, format), as_json)
    elif queries is not None:
        texts = _read_queries(queries, column, format)
        while batch := list(islice(texts, QUERIES_AT_ONCE)):
            for text, hits in zip(batch, find(batch, top), strict=True):
                sys.stdout.write(json.dumps(_as_dict(text, hits), ensure_ascii=False) + "\n")
    else:
        assert query is not None
        results = [_as_dict(text, hits) for text, hits in zip(query, find(query, top), strict=True)]
        print_result({"results": results}, as_json, _result_lines(results))


def _read_queries(file: Path, column: str, format: str | None) -> Iterator[str]:
    from bertwright.data.document import ReadCounts
    from bertwright.data.readers.identified_texts import read_identified_texts
    from bertwright.data.readers.sources import find_sources

    sources = find_sources([file], column, format)
    return (text.text for text in read_identified_texts(sources, ReadCounts()))


def _evaluate(
    index: "SearchIndex", find: Any, file: Path, column: str, format: str | None
) -> dict[str, Any]:
    from bertwright.core.errors import UserError
    from bertwright.retrieval.evaluation import DEPTH, ranking_scores, read_judged_queries
    from bertwright.tasks.evaluation.bootstrap import finite_bounds

    judged = read_judged_queries(file, column, format)
    rankings: list[list[str]] = []
    relevant: list[frozenset[str]] = []
    while batch := list(islice(judged, QUERIES_AT_ONCE)):
        # Several chunks of a text count once, at the rank of the best.
        rankings += [
            list(dict.fromkeys(h.id for h in hits)) for hits in find([q.text for q in batch], DEPTH)
        ]
        relevant += [query.relevant for query in batch]
    if not rankings:
        raise UserError(f"{file} holds no queries: write one in each row, with its relevant texts")
    scores = ranking_scores(rankings, relevant)
    return {
        "queries": len(rankings),
        "texts": index.manifest.num_texts,
        **{
            name: {"mean": interval.value, "interval": finite_bounds(interval)}
            for name, interval in scores.items()
        },
    }


def _as_dict(query: str, hits: "list[SearchHit]") -> dict[str, Any]:
    fields = (asdict(hit).items() for hit in hits)
    return {"query": query, "hits": [{k: v for k, v in hit if v is not None} for hit in fields]}


def _shortened(text: str) -> str:
    """Return the beginning of a text that is too long, up to a space if there is one."""
    if len(text) <= SHOWN_CHARACTERS:
        return text
    beginning = text[: SHOWN_CHARACTERS - 4]
    return f"{beginning.rpartition(' ')[0] or beginning} ..."


def _result_lines(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    for number, result in enumerate(results):
        if len(results) > 1:
            yield from [""] * (number > 0)
            yield result["query"]
        for hit in result["hits"]:
            content = f"{hit['title']}: {hit['text']}" if "title" in hit else hit["text"]
            text = _shortened(" ".join(content.split()))
            span = f" [{hit['start']}:{hit['stop']}]" if "start" in hit else ""
            yield f"{hit['score']:8.4f}  {hit['id']}{span}  {text}"
        if not result["hits"]:
            yield "no text shares a word with the query"
