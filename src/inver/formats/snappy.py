"""Snappy's raw format, unpacked."""

from __future__ import annotations


class BadSnappy(ValueError):
    pass


def unpack_snappy(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes come out."""
    try:
        return _unpack(data, limit)
    except IndexError:
        raise BadSnappy("a block is cut off") from None


def _unpack(data: bytes, limit: int) -> bytes:
    size = shift = at = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise BadSnappy("a block has a wrong length")
    if size > limit:
        raise BadSnappy("a block is too large")
    out = bytearray()
    end = len(data)
    while at < end:
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                wide = length - 59
                length = int.from_bytes(data[at : at + wide], "little")
                at += wide
            length += 1
            if at + length > end:
                raise BadSnappy("a block is cut off")
            out += data[at : at + length]
            at += length
        else:
            if kind == 1:
                length, offset = ((tag >> 2) & 7) + 4, (tag >> 5) << 8 | data[at]
                at += 1
            else:
                wide = 2 if kind == 2 else 4
                length, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + wide], "little")
                at += wide
            if at > end:
                raise BadSnappy("a block is cut off")
            _copy(out, offset, length)
        if len(out) > size:
            break
    if len(out) != size:
        raise BadSnappy("a block has a wrong length")
    return bytes(out)


def _copy(out: bytearray, offset: int, length: int) -> None:
    """The copied piece may reach into what it makes itself."""
    start = len(out) - offset
    if offset == 0 or start < 0:
        raise BadSnappy("a block refers to what is not there")
    if offset >= length:
        out += out[start : start + length]
        return
    piece = bytes(out[start:])
    out += (piece * (length // offset + 1))[:length]
