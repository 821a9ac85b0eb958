"""``bertwright view``: a page on which one looks at what a model does with a text."""

from pathlib import Path
from typing import Annotated

import typer

from bertwright.cli.output import AsJson, report, say


def view(
    model: Annotated[Path, typer.Argument(help="A model folder, ours or Hugging Face's.")],
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TEXT]...", help="What is looked at; a pair with a tab between."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="More texts: one on each line, a pair with a tab between; or a .conllu file. "
            "Nearest words are looked for in all of them."
        ),
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, help="So many texts are on the page, the first ones.")
    ] = 10,
    against: Annotated[
        Path | None,
        typer.Option(help="Another model, before or after: its values, and the differences."),
    ] = None,
    output: Annotated[Path, typer.Option("-o", "--output", help="The page.")] = Path("view.html"),
    length: Annotated[int, typer.Option(min=4, help="Places of a row; texts are cut there.")] = 128,
    as_json: AsJson = False,
) -> None:
    """Write a page that needs nothing but itself: what every head looks at, as lines and as
    pictures, by weights, effective attention, length of values and rollout; queries and keys; what
    the model would name in every place; the nearest words in every layer."""
    from bertwright.analysis.analysis import Case
    from bertwright.analysis.subject import Subject
    from bertwright.analysis.texts import read_file, read_given, worded
    from bertwright.analysis.viewer.page import write_view
    from bertwright.document import origin
    from bertwright.errors import UserError
    from bertwright.interop.loading import load

    if not text and data is None:
        raise UserError("nothing to look at: give a text, or a file of texts with --data")
    given = [*read_given(text or []), *(read_file(data) if data else [])]
    subject = Subject(model.resolve().name, load(model, "float32"))
    other = None if against is None else Subject(against.resolve().name, load(against, "float32"))
    case = Case(subject, worded(subject, given, length), other=other)
    write_view(case, output, origin(), most)
    if as_json:
        report({"page": str(output), "texts": min(most, len(case.texts))}, as_json)
        return
    say(f"wrote {output}")
