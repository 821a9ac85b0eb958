"""``bertwright sample``: English text without a download."""

from dataclasses import asdict

from bertwright.cli.options import NumWorkersOption, OutputOption
from bertwright.cli.output import JsonOption, print_result


def sample(
    output: OutputOption,
    num_workers: NumWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Collect English prose from the documentation of Python and its packages."""
    from bertwright.data.sample_text.sample import write_sample_text

    report = asdict(write_sample_text(output, num_workers))
    if not as_json:  # too long to read; sample.json has them
        del report["packages"], report["words_by_package"]
    print_result({"text": str(output / "sample.txt")} | report, as_json)
