"""``bertwright generate``: a model goes on with texts."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.embed import Language
from bertwright.cli.output import AsJson, say
from bertwright.cli.plugin import Plugin
from bertwright.cli.stated import refuse


def generate(
    context: typer.Context,
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT...]", help="Texts to continue; - or none: standard input."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Prompts from a file: .txt, one on each line, or .jsonl; also .gz."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Pieces to add, at most.")] = 64,
    temperature: Annotated[
        float, typer.Option(help="Above 1 bolder, below 1 safer; 0 takes the most probable piece.")
    ] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Choose among the K most probable pieces.")
    ] = None,
    top_p: Annotated[
        float, typer.Option(help="Choose among the most probable that together have this share.")
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Above 1: pieces that are there already are less likely.")
    ] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option(help="End before this text; may be given several times.")
    ] = None,
    sweeps: Annotated[
        int, typer.Option(min=1, help="How often a masked model goes over what it adds.")
    ] = 1,
    beams: Annotated[
        int, typer.Option(min=1, help="Draw nothing: the best of so many ways side by side.")
    ] = 1,
    length_power: Annotated[
        float, typer.Option(help="Beams are compared per length to this power; 0 favours short.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, other texts.")] = 0,
    num_samples: Annotated[int, typer.Option(min=1, help="Texts for each prompt.")] = 1,
    by: Annotated[
        str | None, typer.Option(help="The objective that is asked, where the recipe has several.")
    ] = None,
    language: Language = None,
    into: Annotated[
        str | None, typer.Option(help="The language that a decoder says it in (MASS).")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help='Standard input has {"prompt": ...} on each line.')
    ] = False,
    plugin: Plugin = None,
    as_json: AsJson = False,
) -> None:
    """Continue every prompt. With --json, one JSON object for each text, a line each."""
    from bertwright.machine.process import tune_process

    tune_process()
    from bertwright.interop.loading import load
    from bertwright.model.generating.generate import slowness

    if "-" not in (prompts or []) and (prompts or file is not None):
        refuse(context, "no standard input is read", "jsonl")
    asked = list(_prompts(prompts or [], file, jsonl))
    loaded = load(model, "float32")
    if slow := slowness(loaded.model.recipe, by):
        say(f"bertwright: this is slow: {slow}")
    full = 0
    for found in loaded.generate(
        asked,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        stop=stop or (),
        sweeps=sweeps,
        beams=beams,
        length_power=length_power,
        seed=seed,
        num_samples=num_samples,
        by=by,
        language=language,
        into=into,
    ):
        line = json.dumps(found.as_dict(), ensure_ascii=False) if as_json else found.whole
        sys.stdout.write(line + "\n")
        full += found.stopped == "full"
    if full:
        say(f"bertwright: {full} of the texts ended where the model can read no more")


def _prompts(given: list[str], file: Path | None, jsonl: bool) -> Iterator[str]:
    """The prompts of the command, with those of standard input where it is asked, then those of a
    file; of standard input alone where nothing else is named."""
    from bertwright.tasks.formats.lines import STANDARD_INPUT, name_of, read_lines
    from bertwright.tasks.formats.prompts import prompts_of, read_prompts

    for prompt in given or (["-"] if file is None else []):
        if prompt == "-":
            yield from prompts_of(name_of(STANDARD_INPUT), read_lines(STANDARD_INPUT), jsonl)
        else:
            yield prompt
    if file is not None:
        yield from read_prompts(file)
