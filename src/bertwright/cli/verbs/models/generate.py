"""``bertwright generate``: generate text."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.options import LanguageOption, ModelArgument, PluginOption, refuse_options
from bertwright.cli.output import JsonOption, log
from bertwright.core.messages import count_noun


def generate(
    context: typer.Context,
    model: ModelArgument,
    prompts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROMPT...]", help="Texts to continue; - or none: standard input."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Prompts from a file: .txt, one per line, or .jsonl; also .gz."),
    ] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Maximum number of new tokens.")] = 64,
    temperature: Annotated[float, typer.Option(help="Sampling temperature; 0 is greedy.")] = 1.0,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="Sample from the K most probable tokens.")
    ] = None,
    top_p: Annotated[
        float,
        typer.Option(help="Sample from the most probable tokens with this total probability."),
    ] = 1.0,
    repetition_penalty: Annotated[
        float, typer.Option(help="Penalty for tokens that already occur; 1 is none.")
    ] = 1.0,
    stop: Annotated[
        list[str] | None, typer.Option(help="Stop before this text; may be repeated.")
    ] = None,
    sweeps: Annotated[
        int, typer.Option(min=1, help="Masked models: number of resampling sweeps.")
    ] = 1,
    num_beams: Annotated[int, typer.Option(min=1, help="Beam search with N beams.")] = 1,
    length_penalty: Annotated[
        float,
        typer.Option(help="Exponent of the length in the scores of beams; 0 favours short texts."),
    ] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    num_samples: Annotated[int, typer.Option(min=1, help="Number of texts per prompt.")] = 1,
    objective: Annotated[
        str | None, typer.Option(help="Objective that generates, where the recipe has several.")
    ] = None,
    language: LanguageOption = None,
    target_language: Annotated[
        str | None, typer.Option(help="Language of the text that a decoder generates (MASS).")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", help='Read standard input as JSON lines ({"prompt": ...}).')
    ] = False,
    plugin: PluginOption = None,
    as_json: JsonOption = False,
) -> None:
    """Generate text; with --json, one JSON object per line."""
    from bertwright.interop.loading import load
    from bertwright.models.generation.generate import slow_generation_reason

    if "-" not in (prompts or []) and (prompts or file is not None):
        refuse_options(context, "no standard input is read", "jsonl")
    texts = list(_read_prompts(prompts or [], file, jsonl))
    loaded = load(model, "float32")
    if reason := slow_generation_reason(loaded.model.recipe, objective):
        log(f"bertwright: this is slow: {reason}")
    num_full = 0
    for generated in loaded.generate(
        texts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        repetition_penalty=repetition_penalty,
        stop=stop or (),
        sweeps=sweeps,
        num_beams=num_beams,
        length_penalty=length_penalty,
        seed=seed,
        num_samples=num_samples,
        objective=objective,
        language=language,
        target_language=target_language,
    ):
        line = (
            json.dumps(generated.as_dict(), ensure_ascii=False) if as_json else generated.full_text
        )
        sys.stdout.write(line + "\n")
        num_full += generated.finish_reason == "full"
    if num_full:
        log(f"bertwright: {count_noun(num_full, 'text')} ended at the maximum length of the model")


def _read_prompts(prompts: list[str], prompt_file: Path | None, jsonl: bool) -> Iterator[str]:
    """Yield prompts from arguments and a file; - or no prompt at all reads standard input."""
    from bertwright.data.readers.text_lines import STANDARD_INPUT, display_name, read_lines
    from bertwright.models.generation.prompt_files import parse_prompts, read_prompts

    for prompt in prompts or (["-"] if prompt_file is None else []):
        if prompt == "-":
            yield from parse_prompts(
                display_name(STANDARD_INPUT), read_lines(STANDARD_INPUT), jsonl
            )
        else:
            yield prompt
    if prompt_file is not None:
        yield from read_prompts(prompt_file)
