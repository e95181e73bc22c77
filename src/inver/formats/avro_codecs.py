"""How the blocks of Avro files are packed."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping

from inver.errors import Unsupported
from inver.formats.snappy import BadSnappy, unpack_snappy

MAX_BLOCK = 128 * 2**20
"""Largest block that is unpacked; writers make them of some dozen kilobytes."""


def codec(name: str) -> Callable[[bytes], bytes]:
    try:
        return _CODECS[name]
    except KeyError:
        raise Unsupported(f"the Avro file is compressed with {name[:50]!r}, which is not read here") from None


def _inflate(data: bytes) -> bytes:
    unpacker = zlib.decompressobj(wbits=-15)
    block = unpacker.decompress(data, MAX_BLOCK)
    if not unpacker.eof:
        raise ValueError("a block is cut off or too large")
    return block


def _bunzip(data: bytes) -> bytes:
    unpacker = bz2.BZ2Decompressor()
    return _whole(unpacker, unpacker.decompress(data, MAX_BLOCK))


def _unxz(data: bytes) -> bytes:
    unpacker = lzma.LZMADecompressor()
    return _whole(unpacker, unpacker.decompress(data, MAX_BLOCK))


def _whole(unpacker: bz2.BZ2Decompressor | lzma.LZMADecompressor, block: bytes) -> bytes:
    if not unpacker.eof:
        raise ValueError("a block is cut off or too large")
    return block


def _unsnappy(data: bytes) -> bytes:
    """Avro puts a checksum of the plain bytes behind the packed ones."""
    try:
        block = unpack_snappy(data[:-4], MAX_BLOCK)
    except BadSnappy as error:
        raise ValueError(str(error)) from None
    if zlib.crc32(block) != int.from_bytes(data[-4:], "big"):
        raise ValueError("a block has a wrong checksum")
    return block


def _unzstd(data: bytes) -> bytes:
    """The standard library has this from Python 3.14 on; before, pyarrow has it, where it is installed."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise Unsupported(
            "the Avro file is compressed with zstandard, which is not read here without pyarrow",
            fix="install inver[sharing], or set write.avro.compression-codec to gzip",
        ) from None
    with pyarrow.input_stream(pyarrow.BufferReader(data), compression="zstd") as stream:
        block: bytes = stream.read(MAX_BLOCK)
        if stream.read(1):
            raise ValueError("a block is too large")
    return block


_CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": _inflate,
    "bzip2": _bunzip,
    "xz": _unxz,
    "snappy": _unsnappy,
    "zstandard": _unzstd,
}
