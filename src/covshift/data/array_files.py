"""Arrays in `.npy` and `.npz` files, whose sizes are checked before memory is taken."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any
from zipfile import BadZipFile, ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from covshift.errors import InputError

_MOST_DEFLATED = 1032
"""Deflate packs no data more tightly than this."""


def read_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """The array of numbers in an open `.npy` file.

    Args:
        file: where to read from.
        size: bytes that the file has; an array whose header says more is refused.

    Raises:
        ValueError: the file holds no array of numbers, or does not have the size that its header says.
    """
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it is of the version {version}, but 1.0 and 2.0 can be read")
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    try:
        shape, is_fortran, dtype = read_header(file)
    except Exception as error:  # It is Python source, which fails in many ways.
        raise ValueError(f"its header cannot be read: {error}") from error
    if dtype.kind not in "biuf":
        raise ValueError(f"it holds values of the type {dtype}, but numbers are needed")
    needed = math.prod(shape) * dtype.itemsize
    if needed > size or min(shape, default=0) < 0:
        raise ValueError(f"its header says {needed} bytes, but it has {size}")
    data = file.read(needed)
    if len(data) < needed:
        raise ValueError(f"its header says {needed} bytes, but it has {len(data)}")
    flat = np.frombuffer(bytearray(data), dtype=dtype)
    return flat.reshape(shape[::-1]).T if is_fortran else flat.reshape(shape)


def read_arrays(path: Path, names: Iterable[str] | None = None) -> dict[str, NDArray[Any]]:
    """Arrays of numbers in an `.npz` file.

    Args:
        path: the file.
        names: the arrays to read, of those that the file has; others are not unpacked. None reads all.

    Raises:
        InputError: the file cannot be read, an array does not hold numbers, or they do not fit into memory.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    arrays = {}
    try:
        if path.exists() and not path.is_file():  # A named pipe would be waited for.
            raise InputError(f"{path} cannot be read: it is not an ordinary file")
        with ZipFile(path) as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if names is not None and name not in names:
                    continue
                most = min(memory, _MOST_DEFLATED * max(member.compress_size, 1))
                if member.file_size > most:
                    raise ValueError(f"{name} says that it has {member.file_size} bytes")
                with archive.open(member) as file:
                    arrays[name] = _named(name, file, member.file_size)
    except (OSError, ValueError, EOFError, SyntaxError, RuntimeError, NotImplementedError) as error:
        raise InputError(f"{path} cannot be read as .npz: {error}") from error
    except (BadZipFile, MemoryError, OverflowError) as error:
        raise InputError(
            f"{path} cannot be read as .npz: {error or 'not enough memory'}"
        ) from error
    return arrays


def _named(name: str, file: IO[bytes], size: int) -> NDArray[Any]:
    try:
        return read_array(file, size)
    except (ValueError, SyntaxError) as error:
        raise ValueError(f"{name}: {error}") from error
