"""Read Parquet files in batches of bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bertwright.core.errors import UserError
from bertwright.core.messages import first_line

_MAX_BATCH_ROWS = 256
_MAX_BATCH_BYTES = 1 << 28
"""Maximum rows and bytes of Parquet data that are decoded at once."""


def parquet_rows(
    file: Any, name: str, select: Callable[[Any], Sequence[str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a Parquet file with their numbers, from 1, in bounded memory.

    ``select`` returns the columns to read, given the schema. Errors: UserError for a damaged file,
    text that is not UTF-8, and rows that are too large.
    """
    import pyarrow as arrow
    from pyarrow import parquet

    number = 0
    try:
        table: Any = parquet.ParquetFile(file)
        columns = select(table.schema_arrow)
        for batch in table.iter_batches(_batch_size(table.metadata), columns=columns):
            if batch.nbytes > _MAX_BATCH_BYTES:
                raise UserError(
                    f"{name}: the rows from {number + 1} on have {batch.nbytes:,} bytes: split the "
                    f"texts"
                )
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except UnicodeDecodeError as error:
        raise UserError(
            f"{name} holds text that is not UTF-8 after row {number}: {error}"
        ) from None
    except (arrow.ArrowException, OSError) as error:
        reason = first_line(error)
        raise UserError(f"{name} is not a complete parquet file: {reason}") from None


def require_unique_columns(location: str, columns: Sequence[str], names: Sequence[str]) -> None:
    """Raise UserError if a table has a column to read twice."""
    for column in columns:
        if list(names).count(column) > 1:
            raise UserError(f"{location} has two columns {column!r}: rename one")


def _batch_size(metadata: Any) -> int:
    """Return the number of rows to decode at once.

    The estimate allows for dictionary encoding, which may repeat a large cell.
    """
    chunks = (
        metadata.row_group(group).column(column).total_uncompressed_size
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    return max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_BYTES // max(1, *chunks, 1)))
