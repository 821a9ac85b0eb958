"""``bertwright rerank``: train a model that re-ranks the recommendations of another."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import ModelArgument, PluginOption
from bertwright.cli.output import JsonOption, print_result


def rerank(
    model: ModelArgument,
    data: Annotated[
        Path, typer.Option(help="Data folder with the histories that the model was trained on.")
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Folder for the re-ranker and the re-ranked lists."),
    ],
    list_length: Annotated[int, typer.Option(min=2, help="Number of items in a list.")] = 30,
    first: Annotated[
        str, typer.Option(help="Ranking to start from: model, or popularity.")
    ] = "model",
    width: Annotated[int, typer.Option(min=1, help="Width of the re-ranker.")] = 64,
    depth: Annotated[int, typer.Option(min=1, help="Transformer layers of the re-ranker.")] = 2,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of each layer.")] = 2,
    epochs: Annotated[int, typer.Option(min=0, help="Passes over the lists.")] = 30,
    learning_rate: Annotated[float, typer.Option(help="Highest learning rate.")] = 1e-3,
    dropout: Annotated[float, typer.Option(min=0, max=0.99, help="Dropout rate.")] = 0.1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Re-rank the recommendations of a model with a transformer over each list (PRM).

    The re-ranker learns which item of a list each user chose. Metrics are on the test items, before
    and after re-ranking.
    """
    from pydantic import ValidationError

    from bertwright.core.config import to_user_error
    from bertwright.core.files import atomic_folder, require_new_folder
    from bertwright.data.shards.dataset import Dataset
    from bertwright.interop.loading import load
    from bertwright.tasks.finetuning.result_folder import write_json_lines
    from bertwright.training.reranking.training import (
        RerankingSettings,
        iter_rankings,
        rerank,
        train_reranker,
    )

    try:
        settings = RerankingSettings.model_validate(
            {
                "list_length": list_length,
                "first": first,
                "width": width,
                "depth": depth,
                "heads": heads,
                "epochs": epochs,
                "learning_rate": learning_rate,
                "dropout": dropout,
                "seed": seed,
            }
        )
    except ValidationError as error:
        raise to_user_error(error, "rerank") from error
    require_new_folder(output)
    histories = Dataset.open(data)
    result = train_reranker(load(model).model, histories, settings)
    with atomic_folder(output) as folder:
        reranked = rerank(result.reranker, result.test_lists)
        write_json_lines(folder / "rankings.jsonl", iter_rankings(reranked, histories))
        result.reranker.save(folder)
    print_result(result.as_dict(), as_json)
