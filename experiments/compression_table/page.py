"""The table: published results, counts, and measured times."""

from pathlib import Path

from benchmarks.markdown_sections import write_section
from bertwright.runtime.markdown_report import markdown_table
from experiments.compression_table.published import BASE, encoder_size, load_published
from experiments.compression_table.timing import speed_up

SECTION = "table of compression"

COLUMNS = {
    "id": "row",
    "model": "model",
    "compression": "compression",
    "retention": "retention, %",
    "speed_up": "times faster",
    "layers": "layers",
    "tasks": "tasks",
    "parameters": "parameters, M",
    "fewer": "times fewer",
    "megabytes": "MB",
    "smaller": "times smaller",
    "retained": "of the scores, %",
    "flops": "times fewer FLOPs",
    "efficiency": "published speed over it",
    "measured": "times faster here",
    "efficiency_here": "speed here over it",
}

COUNTED_NOTE = (
    "Left of the parameters: published results, measured by others on their machines. To the "
    "right, counts of our recipes against BERT-base: encoder, embeddings, pooler; bytes by the "
    "bits of the weights; the mean of scores, where scores were published task by task; FLOPs per "
    "token in sequences of 128."
)
MEASURED_NOTE = (
    " Measured here: one sequence of 128 tokens, by an untrained encoder with a head of two "
    "classes, interleaved with BERT-base."
)


def table_rows(timings: Path | None) -> list[dict[str, object]]:
    """Return a line for each model, with the times of a folder if there is one."""
    base, lines = encoder_size(BASE), list[dict[str, object]]()
    for model in load_published():
        result, size = model.result, model.size
        line: dict[str, object] = {"id": model.id, "model": model.model, "source": model.source}
        line |= result.model_dump() | {"retained": model.score_retention}
        if size is not None:
            ratio = base.flops / size.flops
            line |= {
                "parameters": round(size.parameters / 1e6, 2),
                "fewer": base.parameters / size.parameters,
                "megabytes": size.bytes / 1e6,
                "smaller": base.bytes / size.bytes,
                "flops": ratio,
            }
            if result.speed_up is not None:
                baseline_ratio = encoder_size(model.speed_baseline).flops / size.flops
                line["efficiency"] = result.speed_up / baseline_ratio
            measured = None if timings is None else speed_up(model, timings)
            if measured is not None:
                line |= {"speed_up_here": list(measured), "efficiency_here": measured[0] / ratio}
                line["measured"] = f"{measured[0]:.3g} [{measured[1]:.3g}, {measured[2]:.3g}]"
        lines.append(line)
    return lines


def write_table(rows: list[dict[str, object]], document: Path) -> None:
    """Write the table; published results are left of the parameters."""
    note = COUNTED_NOTE + (MEASURED_NOTE if any("measured" in line for line in rows) else "")
    write_section(document, SECTION, [note, "", *markdown_table(COLUMNS, rows)])
