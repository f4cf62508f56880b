"""Tables as users have them: frames, Arrow tables, mappings, rows, and CSV and Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from covshift.errors import InputError
from covshift.estimation.labels import objects

TEXT_FILES, PARQUET = (".csv", ".csv.gz", ".tsv", ".tsv.gz"), (".parquet", ".pq")

_MISSING = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None"]
_EXACT = 2.0**53
"""Whole numbers from here on are not exact as floats."""


class Columns(NamedTuple):
    """A table that is read column by column.

    Attributes:
        where: what the table is called in messages.
        names: the names of all columns.
        read: arrays of some columns; those in the second argument hold labels and stay text if a file has text.
    """

    where: str
    names: list[str]
    read: Callable[[Sequence[str], Sequence[str]], dict[str, NDArray[Any]]]


def has_columns(data: Any) -> bool:
    """Whether `as_columns` takes these data."""
    if isinstance(data, str | Path):
        return is_table_file(data)
    if hasattr(data, "collect_schema"):
        return True
    rows = isinstance(data, list | tuple) and len(data) > 0 and isinstance(data[0], Mapping)
    frame = hasattr(data, "columns") and hasattr(data, "__getitem__")
    return rows or frame or isinstance(data, Mapping) or hasattr(data, "__arrow_c_stream__")


def is_table_file(path: str | Path) -> bool:
    """Whether this is a CSV or Parquet file by its name, or a folder of Parquet files."""
    if str(path).lower().endswith(TEXT_FILES + PARQUET):
        return True
    return Path(path).is_dir() and any(Path(path).rglob("*.parquet"))


def as_columns(data: Any) -> Columns:
    """The columns of a frame, an Arrow table, a mapping of arrays, a list of rows, or a file."""
    if isinstance(data, str | Path):
        return _of_file(Path(data))
    if hasattr(data, "collect_schema") and hasattr(data, "collect"):
        data = data.collect()  # A lazy frame of Polars.
    if isinstance(data, list | tuple):
        names = list(dict.fromkeys(str(name) for row in data for name in _row(row)))
        return Columns("the rows", names, lambda some, _: _of_rows(data, some))
    if hasattr(data, "__arrow_c_stream__") and not hasattr(data, "iloc"):
        return _of_arrow("the table", pa.table(data))
    where = "the mapping" if isinstance(data, Mapping) else "the frame"
    by_name = {str(name): name for name in (data if isinstance(data, Mapping) else data.columns)}
    return Columns(
        where,
        list(by_name),
        lambda some, _: {name: as_column(name, data[by_name[name]]) for name in some},
    )


def as_column(name: str, values: Any) -> NDArray[Any]:
    """An array of whatever a column is made of; entries of different shapes become objects."""
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return _arrow_array(values)
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise InputError(
            f"{name} must hold one entry per row, but it is {values!r}; give a list or an array"
        )
    try:
        array = np.asarray(values)
    except ValueError:
        return objects(values)
    # Words beside numbers would all become words, and whole numbers beyond 64 bits would lose digits as floats.
    mixed = array.dtype.kind not in "biuf"
    big = array.dtype.kind == "f" and any(isinstance(v, int) and abs(v) >= _EXACT for v in values)
    return objects(values) if mixed or big else array


def _row(row: Any) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError(f"every row must be a mapping from names to values, but one is {row!r}")
    return row


def _of_rows(rows: Sequence[Any], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    return {name: as_column(name, [row.get(name) for row in rows]) for name in names}


def _of_arrow(where: str, table: pa.Table) -> Columns:
    def read(some: Sequence[str], _: Sequence[str]) -> dict[str, NDArray[Any]]:
        return {name: _arrow_array(table[name]) for name in some}

    return Columns(where, list(table.column_names), read)


def _arrow_array(column: Any) -> NDArray[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ChunkedArray):  # Older versions give one with a single chunk, or none.
        column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_fixed_size_list(column.type) and not column.null_count:
        return np.asarray(column.flatten()).reshape(len(column), column.type.list_size)
    if pa.types.is_integer(column.type) and column.null_count:
        return objects(column.to_pylist())
    number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if number or pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    return objects(column.to_pylist())


def _of_file(path: Path) -> Columns:
    if not path.exists():
        raise InputError(f"there is no file {path}")
    for part in path.rglob("*") if path.is_dir() else [path]:
        # Reading a pipe waits forever, and Ctrl-C does not end it.
        if not (part.is_file() or part.is_dir()):
            raise InputError(f"{part} cannot be read: it is not an ordinary file")
    from pyarrow import dataset  # It imports pandas, if there is one, which takes long.

    try:
        if str(path).lower().endswith(TEXT_FILES):
            return _of_text(path)
        table = dataset.dataset(path, format="parquet", partitioning="hive")
        names = list(table.schema.names)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(path, error) from error

    def read(some: Sequence[str], _: Sequence[str]) -> dict[str, NDArray[Any]]:
        try:
            found = table.to_table(columns=list(some))
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        return {name: _arrow_array(found[name]) for name in some}

    return Columns(str(path), names, read)


def _of_text(path: Path) -> Columns:
    """A CSV file; the type of a column follows from all of its rows, not from the first ones."""
    from pyarrow import csv

    with pa.input_stream(str(path)) as file:
        head = file.read(1 << 16).decode("utf-8", errors="replace").lstrip("\ufeff")
    first = head.split("\n", 1)[0]
    parse = csv.ParseOptions(delimiter=max(",;\t", key=first.count), newlines_in_values=True)
    with csv.open_csv(path, parse_options=parse) as reader:
        names = list(reader.schema.names)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"{path} has several columns called {', '.join(twice)}: rename them")

    def read(some: Sequence[str], labels: Sequence[str]) -> dict[str, NDArray[Any]]:
        convert = csv.ConvertOptions(
            include_columns=list(some),
            column_types={name: pa.string() for name in some},
            null_values=_MISSING,
            strings_can_be_null=True,
        )
        try:
            table = csv.read_csv(path, parse_options=parse, convert_options=convert)
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(path, error) from error
        return {
            name: _arrow_array(table[name] if name in labels else _typed(table[name]))
            for name in some
        }

    return Columns(str(path), names, read)


def _typed(column: Any) -> Any:
    """Text as whole numbers, numbers or truth values, the first that fits every row; else as it is."""
    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        try:
            made = pc.cast(column, kind)
        except pa.ArrowInvalid:
            continue
        if kind == pa.float64() and pc.max(pc.abs(made)).as_py() not in (None, np.inf):
            digits = pc.match_substring_regex(column, r"^\s*[+-]?\d{16,}\s*$")
            if pc.any(digits).as_py():
                return column
        return made
    return column


def _unreadable(path: Path, error: Exception) -> InputError:
    return InputError(f"{path} cannot be read: {str(error).splitlines()[0]}")
