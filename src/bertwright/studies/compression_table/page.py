"""The table: what was published, what is counted and computed, what was measured here."""

from pathlib import Path

from bertwright.document import table, write_section
from bertwright.studies.compression_table.published import BASE, published, size_of
from bertwright.studies.compression_table.timing import speed_up

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
    "operations": "times fewer operations",
    "efficiency": "published speed over it",
    "measured": "times faster here",
    "efficiency_here": "speed here over it",
}

COUNTED = (
    "Left of the parameters what was published, by others and on their machines. To the right what "
    "is counted of our own recipes against BERT-base: encoder, embeddings and pooler; bytes by the "
    "bits of the weights; the mean of scores, where scores were published task by task; operations "
    "for a place in rows of 128."
)
MEASURED = (
    " Measured here: one row of 128 pieces, by an encoder as it is drawn, with a head of two "
    "classes, in turns with BERT-base."
)


def rows(folder: Path | None) -> list[dict[str, object]]:
    """A line for each model; with the times in a folder, where there is one."""
    base, found = size_of(BASE), list[dict[str, object]]()
    for row in published():
        said, own = row.published, row.size
        line: dict[str, object] = {"id": row.id, "model": row.model, "source": row.source}
        line |= said.model_dump() | {"retained": row.retained}
        if own is not None:
            fewer = base.operations / own.operations
            line |= {
                "parameters": round(own.parameters / 1e6, 2),
                "fewer": base.parameters / own.parameters,
                "megabytes": own.bytes / 1e6,
                "smaller": base.bytes / own.bytes,
                "operations": fewer,
            }
            if said.speed_up is not None:
                timed = size_of(row.timed_against).operations / own.operations
                line["efficiency"] = said.speed_up / timed
            here = None if folder is None else speed_up(row, folder)
            if here is not None:
                line |= {"speed_up_here": list(here), "efficiency_here": here[0] / fewer}
                line["measured"] = f"{here[0]:.3g} [{here[1]:.3g}, {here[2]:.3g}]"
        found.append(line)
    return found


def write_table(found: list[dict[str, object]], document: Path) -> None:
    """Write it; what is published stands left of the parameters."""
    told = COUNTED + (MEASURED if any("measured" in line for line in found) else "")
    write_section(document, SECTION, [told, "", *table(COLUMNS, found)])
