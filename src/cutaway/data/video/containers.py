"""Whether a video file is whole, by what its own head says: FFmpeg reads on without a word where bytes are missing."""

from __future__ import annotations

from mmap import mmap

Content = bytes | mmap  # of a whole file

RIFF = b"RIFF"
MATROSKA, SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"  # the head of a file, and of all that follows it
HEAD = 4096  # bytes within which the latter begins


def missing_bytes(data: Content) -> int:
    """How many bytes the head promises beyond those of `data`; 0 where it does not tell, or is of another form."""
    if data[:4] == RIFF:  # .avi
        size = int.from_bytes(data[4:8], "little")
        return 0 if size >= 0x7FFFF000 else max(0, 8 + size - len(data))
    if data[:4] == MATROSKA:  # .mkv, .webm
        return _of_segment(data)
    if data[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):  # .mp4, .m4v, .mov
        return _of_boxes(data)
    return 0


def _of_segment(data: Content) -> int:
    """Matroska: the size of the segment is a number whose first byte tells, by its leading zeros, how long it is."""
    start = data.find(SEGMENT, 0, HEAD) + len(SEGMENT)
    if start < len(SEGMENT) or start >= len(data) or not data[start]:
        return 0
    length = 9 - data[start].bit_length()
    size = int.from_bytes(data[start : start + length], "big") & ((1 << 7 * length) - 1)
    unknown = size == (1 << 7 * length) - 1  # written live
    return 0 if unknown else max(0, start + length + size - len(data))


def _of_boxes(data: Content) -> int:
    """MP4 and QuickTime: boxes one after another, each with its size before its name."""
    at = 0
    while at + 8 <= len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 1:  # the size follows the name, in eight bytes
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        if size < 8:  # 0: up to the end; else no box
            return 0
        at += size
    return max(0, at - len(data))
