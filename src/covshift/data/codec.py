"""How one observation is stored: as it is, as bits, or as a zstd blob under a shared dictionary."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import zstandard
from numpy.typing import NDArray

from covshift.errors import InputError

PLAIN_BYTES = 1024
"""Observations of at most this size are not compressed."""

LARGEST = 2**26
"""The most bytes of an observation."""

LEVEL = 3
DICTIONARY_BYTES = 65_536
DICTIONARY_FRAMES = 4_000
"""The most frames that a dictionary is trained on."""


@final
@dataclass(frozen=True, eq=False)
class FrameCodec:
    """Turns observations into bytes and back.

    Args:
        shape: shape of one observation.
        dtype: type of its values.
        dictionary: zstd dictionary; needed only for observations that are compressed.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dictionary: bytes | None = None
    _compressor: Any = field(init=False, repr=False, default=None)
    _decompressor: Any = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        size = math.prod(self.shape) * self.dtype.itemsize
        if self.dtype.kind not in "biuf" or not 0 < size <= LARGEST:
            raise InputError(
                f"observations are {self.dtype} of shape {self.shape}, but numbers of 1 to {LARGEST:,} bytes in all "
                "are needed"
            )
        if self.encoding != "zstd":
            return
        if self.dictionary is None:
            raise InputError("compressed observations need their dictionary")
        try:
            words = zstandard.ZstdCompressionDict(self.dictionary)
        except zstandard.ZstdError as error:
            raise InputError(
                f"the dictionary of compressed observations is damaged: {error}"
            ) from error
        words.precompute_compress(level=LEVEL)
        compressor = zstandard.ZstdCompressor(
            LEVEL, dict_data=words, write_checksum=False, write_dict_id=False
        )
        object.__setattr__(self, "_compressor", compressor)
        object.__setattr__(self, "_decompressor", zstandard.ZstdDecompressor(dict_data=words))

    @cached_property
    def encoding(self) -> str:
        """`bits` for booleans, `raw` for other small observations, `zstd` for large ones."""
        return encoding_of(self.shape, self.dtype)

    @cached_property
    def size(self) -> int:
        """Values in one observation."""
        return int(np.prod(self.shape, dtype=np.int64))

    @cached_property
    def plain_bytes(self) -> int:
        """Bytes of one observation in memory."""
        return self.size * self.dtype.itemsize

    @cached_property
    def stored_bytes(self) -> int:
        """Bytes of one stored observation that is not compressed."""
        return -(-self.plain_bytes // 8) if self.encoding == "bits" else self.plain_bytes

    def encode(self, observation: NDArray[Any]) -> bytes:
        """The stored bytes of one observation."""
        if self.encoding == "zstd":
            blob: bytes = self._compressor.compress(observation.tobytes())
            return blob
        return (
            np.packbits(observation).tobytes() if self.encoding == "bits" else observation.tobytes()
        )

    def decode(self, blob: Any) -> NDArray[Any]:
        """The values of one stored observation, flat.

        Raises:
            InputError: the bytes are not an observation of this codec; a frame's size is checked before it is unpacked.
        """
        if self.encoding == "zstd":
            return np.frombuffer(self._unpack(blob), dtype=self.dtype)
        return self.decode_plain(np.frombuffer(blob, dtype=np.uint8)[None]).ravel()

    def decode_into(
        self, out: NDArray[Any], slots: NDArray[np.int64], blobs: Iterable[Any]
    ) -> None:
        """Decompresses observations into numbered slots of an array of observations, one after the other in memory.

        A slice of a memoryview is filled faster than a row of an array.

        Raises:
            InputError: the bytes are not an observation of this codec.
        """
        view, size = out.data.cast("B"), self.plain_bytes
        for start, blob in zip((slots * size).tolist(), blobs, strict=True):
            view[start : start + size] = self._unpack(blob)

    def _unpack(self, blob: Any) -> bytes:
        try:
            size = zstandard.frame_content_size(blob)
            if size == self.plain_bytes:
                plain: bytes = self._decompressor.decompress(blob)
                return plain
        except zstandard.ZstdError as error:
            raise InputError(f"a stored observation cannot be unpacked: {error}") from error
        raise InputError(
            f"a stored observation unpacks to {size} bytes, but {self.plain_bytes} are needed"
        )

    def decode_plain(self, stored: NDArray[np.uint8]) -> NDArray[Any]:
        """Observations that are not compressed, from an array with one row of bytes for each."""
        if self.encoding == "bits":
            bits = np.unpackbits(stored, axis=1, count=self.plain_bytes)
            return bits.view(bool).reshape(-1, *self.shape)
        return stored.view(self.dtype).reshape(-1, *self.shape)


def encoding_of(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """The encoding that observations of this shape and type get."""
    if dtype == np.bool_:
        return "bits"
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return "raw" if size <= PLAIN_BYTES else "zstd"


def train_dictionary(frames: list[bytes]) -> bytes:
    """A zstd dictionary for frames like these; the same frames give the same dictionary.

    If there are too few frames to train on, their bytes are the dictionary.
    """
    try:
        words = zstandard.train_dictionary(DICTIONARY_BYTES, list(frames), level=LEVEL)
    except zstandard.ZstdError:
        return b"".join(frames)[:DICTIONARY_BYTES]
    return bytes(words.as_bytes())
