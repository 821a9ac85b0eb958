"""``bertwright serve``: serve models over HTTP."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import PluginOption, PrecisionOption
from bertwright.cli.output import log
from bertwright.core.errors import UserError


def _by_name(folders: Iterable[Path], noun: str) -> dict[str, Path]:
    """Return folders by name; UserError for two of one name."""
    by_name: dict[str, Path] = {}
    for folder in folders:
        name = folder.resolve().name
        if name in by_name:
            raise UserError(f"two {noun} are called {name}: rename a folder")
        by_name[name] = folder
    return by_name


def serve(
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MODEL...]",
            help="Model folders or names on the Hub, served under the last part of the name.",
        ),
    ] = None,
    indexes: Annotated[
        list[Path] | None,
        typer.Option(
            "--index",
            help="Folder of bertwright index, searched at /search; its model is served, too. May "
            "be repeated.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to bind; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8000,
    precision: PrecisionOption = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with one API key per line, or BERTWRIGHT_API_KEY."),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Maximum texts per request.")] = 512,
    text_tokens: Annotated[int, typer.Option(min=3, help="Maximum tokens per text.")] = 8192,
    body_bytes: Annotated[int, typer.Option(min=1, help="Maximum bytes per request.")] = 2_097_152,
    queue_tokens: Annotated[
        int, typer.Option(min=1, help="Maximum tokens that wait for a model; more are refused.")
    ] = 65_536,
    deadline_ms: Annotated[
        float, typer.Option(min=0, help="How long an idle model waits to fill a batch.")
    ] = 2.0,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Seconds until a request times out.")
    ] = 30.0,
    plugin: PluginOption = None,
) -> None:
    """Serve models over HTTP: embeddings, masked tokens, classes, tags, answers, rankings, texts.

    OpenAI's /v1/embeddings, /embed, /predict and /rerank of Text Embeddings Inference, and
    /fill-mask, /classify, /tag, /answer, /generate, /search and /explore. The start page, /, is a
    playground for them that shows each request as curl and Python; their reference is at /docs.
    Ctrl-C stops the server after all accepted requests are answered.
    """
    from bertwright.core.optional_dependencies import require_library

    for library in ("fastapi", "orjson", "uvicorn", "httptools", "prometheus-client"):
        require_library(library, "serve")
    from bertwright.interop.loading import load
    from bertwright.retrieval.search_index import SearchIndex, index_model
    from bertwright.serving.app import create_app
    from bertwright.serving.search_service import ServedIndex
    from bertwright.serving.server import listen, run_server, server_address
    from bertwright.serving.settings import ServingSettings, read_api_keys

    index_folders = _by_name(indexes or (), "indexes")
    index_models = {name: index_model(folder) for name, folder in index_folders.items()}
    model_folders = _by_name(models or (), "models")
    known = {folder.resolve() for folder in model_folders.values()}
    paths = {Path(path) for path in index_models.values() if path is not None}
    further = sorted(path for path in paths if path.resolve() not in known)
    model_folders = _by_name([*model_folders.values(), *further], "models")
    settings = ServingSettings(
        max_texts=texts,
        max_text_tokens=text_tokens,
        max_body_bytes=body_bytes,
        max_queue_tokens=queue_tokens,
        max_batch_delay_ms=deadline_ms,
        request_timeout_seconds=timeout,
        api_keys=read_api_keys(api_key_file),
    )
    with listen(host, port, timeout) as sockets:
        loaded = {name: load(folder, precision) for name, folder in model_folders.items()}
        served_indexes: dict[str, ServedIndex] = {}
        for name, folder in index_folders.items():
            path = index_models[name]
            model_name = None if path is None else Path(path).resolve().name
            model = None if model_name is None else loaded[model_name]
            served_indexes[name] = ServedIndex(SearchIndex.open(folder, model), model_name)
        app = create_app(loaded, settings, served_indexes)
        log(f"serving {', '.join([*loaded, *served_indexes])} at {server_address(sockets)}")
        run_server(app, sockets, timeout)
    log("stopped: all accepted requests are answered")
