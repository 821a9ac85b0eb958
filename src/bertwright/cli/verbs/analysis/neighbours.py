"""``bertwright neighbours``: nearest neighbours of a word in context over a corpus."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from bertwright.cli.options import (
    ColumnOption,
    FormatOption,
    ModelArgument,
    PluginOption,
    PrecisionOption,
)
from bertwright.cli.output import JsonOption, print_result
from bertwright.cli.texts import iter_texts


def neighbours(
    model: ModelArgument,
    queries: Annotated[
        list[str],
        typer.Argument(
            metavar="SENTENCE...",
            help="Sentences with one word in brackets: 'He wrote a \\[play] in five acts'.",
        ),
    ],
    text: Annotated[
        list[str],
        typer.Option(
            "--text", help="Corpus: a file, folder or pattern, as prepare reads; may be repeated."
        ),
    ],
    number: Annotated[
        int, typer.Option("-n", "--number", min=1, help="Number of neighbours of each word.")
    ] = 5,
    layers: Annotated[
        str,
        typer.Option(
            help="Layers to use: last, a number (0: embeddings), 2,4 or 5-8, last-4, all."
        ),
    ] = "last",
    same_word: Annotated[
        bool, typer.Option("--same-word", help="Compare with occurrences of the same word only.")
    ] = False,
    static: Annotated[
        Path | None,
        typer.Option(
            help="Model of word vectors for the static neighbours; by default the model's own "
            "token embeddings."
        ),
    ] = None,
    column: ColumnOption = "text",
    format: FormatOption = None,
    precision: PrecisionOption = None,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the nearest neighbours of a word in context, and of its static vector.

    Words in context are compared by the cosine of their hidden states, over all sentences of a
    corpus; static vectors over the vocabulary.
    """
    from bertwright.analysis.geometry.neighbours import (
        MarkedWord,
        find_neighbours,
        find_static_neighbours,
    )
    from bertwright.interop.loading import load

    marked_words = [MarkedWord.parse(query) for query in queries]
    encoder = load(model, precision)
    encoder.require_text_tokenizer("neighbours")
    vectors = encoder if static is None else load(static, precision)
    texts = iter_texts(text, column, format)
    corpus = find_neighbours(encoder, marked_words, texts, number, layers, same_word)
    results = [
        {
            "sentence": query.marked_text,
            "word": query.word,
            "neighbours": [
                {
                    "similarity": neighbour.similarity,
                    "word": neighbour.occurrence.word,
                    "sentence": neighbour.occurrence.marked_text,
                }
                for neighbour in in_context
            ],
            "static_neighbours": [
                {"similarity": similarity, "token": token}
                for token, similarity in find_static_neighbours(vectors, query.word, number)
            ],
        }
        for query, in_context in zip(marked_words, corpus.neighbours, strict=True)
    ]
    summary = {"results": results, "sentences": corpus.num_sentences, "words": corpus.num_words}
    print_result(summary, as_json, _result_lines(results))


def _result_lines(results: list[dict[str, Any]]) -> Iterator[str]:
    for number, result in enumerate(results):
        if number:
            yield ""
        yield result["sentence"]
        for neighbour in result["neighbours"]:
            yield f"  {neighbour['similarity']:.3f}  {neighbour['sentence']}"
        yield f"  static: {_static_line(result['static_neighbours'])}"


def _static_line(static_neighbours: list[Mapping[str, Any]]) -> str:
    if not static_neighbours:
        return "the vocabulary does not hold the word"
    return ", ".join(f"{n['token']} {n['similarity']:.3f}" for n in static_neighbours)
