"""``bertwright serve``: models behind an address."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import say
from bertwright.cli.plugin import Plugin
from bertwright.cli.precision import Precision


def serve(
    models: Annotated[
        list[Path], typer.Argument(metavar="MODEL...", help="Model folders, called by their names.")
    ],
    host: Annotated[str, typer.Option(help="0.0.0.0 for other machines, too.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
    precision: Precision = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="A key on each line, or BERTWRIGHT_API_KEY: one is asked for."),
    ] = None,
    texts: Annotated[int, typer.Option(min=1, help="Texts of a request.")] = 512,
    text_tokens: Annotated[int, typer.Option(min=3, help="Tokens of a text.")] = 8192,
    body_bytes: Annotated[int, typer.Option(min=1, help="Bytes of a request.")] = 2_097_152,
    queue_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens that wait for a model; more are refused.")
    ] = 65_536,
    deadline_ms: Annotated[
        float, typer.Option(min=0, help="How long an idle model waits for more texts.")
    ] = 2.0,
    timeout: Annotated[
        float, typer.Option(min=0.001, max=86_400, help="Seconds to an answer.")
    ] = 30.0,
    plugin: Plugin = None,
) -> None:
    """Answer over HTTP: vectors, hidden places, classes, tags, answers, rankings; a page at /.

    OpenAI's /v1/embeddings, /embed, /predict and /rerank of Text Embeddings Inference, and
    /fill-mask, /tag and /answer; /docs says what they take. A signal to stop (Ctrl-C) is obeyed
    when everything that was taken is answered.
    """
    from bertwright.extras import require
    from bertwright.machine.process import tune_process

    for library in ("fastapi", "orjson", "uvicorn", "httptools", "prometheus-client"):
        require(library, "serve")
    tune_process()
    from bertwright.errors import UserError
    from bertwright.interop.loading import load
    from bertwright.serving.application import application
    from bertwright.serving.keys import read_keys
    from bertwright.serving.server import address_of, listen, run
    from bertwright.serving.settings import Settings

    names = [folder.resolve().name for folder in models]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"two models are called {name}: rename a folder")
    settings = Settings(
        num_texts=texts,
        text_tokens=text_tokens,
        body_bytes=body_bytes,
        queue_tokens=queue_tokens,
        deadline_ms=deadline_ms,
        timeout_seconds=timeout,
        api_keys=read_keys(api_key_file),
    )
    with listen(host, port, timeout) as listening:
        loaded = {name: load(path, precision) for name, path in zip(names, models, strict=True)}
        app = application(loaded, settings)
        say(f"serving {', '.join(names)} at {address_of(listening)}")
        run(app, listening, timeout)
    say("stopped: everything that was taken is answered")
