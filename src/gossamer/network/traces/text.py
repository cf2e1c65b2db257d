"""Read the text of a log: its size is bounded, and what hides its lines is removed.

Accepted are UTF-8 with or without a byte-order mark, UTF-16 with one, gzip, and lines that end with
LF, CR LF or CR. Empty lines are ignored, and so are comments: lines that begin with `#` or `%`, and
what follows a `#` after a space, unless the log has quotes.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from pathlib import Path
from typing import IO

from gossamer.errors import DataError

SHOWN = 60  # characters of a line in a message
MAX_BYTES = 2**30  # size of a log after decompression
_CHUNK = 2**20  # bytes that are read at once
_GZIP = b"\x1f\x8b"
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_COMMENT_LINE = re.compile(rb"(?m)^[ \t]*[#%][^\n]*$")
_COMMENT = re.compile(rb"(?m)[ \t]#[^\n]*$")
_BLANK_LINE = re.compile(rb"(?m)^[ \t]+$")
# A date and a time of day that are separated by spaces, with an optional time zone after spaces.
_DATE_AND_TIME = re.compile(
    rb"(\d{4}[-/]\d\d[-/]\d\d)[ \t]+(\d\d:\d\d(?::\d\d(?:\.\d+)?)?)"
    rb"(?:[ \t]*(Z|UTC|[+-]\d\d:?\d\d)(?![^\s,;]))?"
)


def read_text(path: Path) -> bytes:
    """Return the text of a log as UTF-8 without comments.

    Every line keeps its number: an ignored line becomes an empty one.

    Args:
        path: The log.

    Returns:
        The text, with lines that end with LF.

    Raises:
        DataError: If the file cannot be read, is too large, or is not text.
    """
    data = _decoded(path, read_bytes(path))
    _check_utf8(path, data)
    if b"\0" in data:
        raise DataError(f"{path} is not text; give a text file, plain or compressed with gzip")
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return data


def without_comments(data: bytes) -> bytes:
    """Return a text with empty lines in the place of comments.

    Args:
        data: The text.
    """
    if b"#" in data or b"%" in data:
        data = _COMMENT_LINE.sub(b"", data)
    if b"#" in data and b'"' not in data:
        data = _COMMENT.sub(b"", data)
    if b"\n " in data or b"\n\t" in data or data[:1] in (b" ", b"\t"):
        data = _BLANK_LINE.sub(b"", data)
    return data


def last_comment(data: bytes) -> str:
    """Return the comment line directly before the first other line; it may name the columns.

    Args:
        data: The text, with comments.

    Returns:
        The line without its sign; empty if there is none.
    """
    comment = ""
    for line in data[:65536].split(b"\n"):
        line = line.strip()
        if line and line[:1] not in b"#%":
            return comment
        if line:
            comment = line.lstrip(b"#% \t").decode("utf-8", "replace")
    return ""


def join_dates(data: bytes) -> bytes:
    """Return a text in which a date and its time of day are one word, such as 2010-12-06T01:02Z.

    Args:
        data: The text of a log whose columns are separated by spaces.
    """
    return _DATE_AND_TIME.sub(rb"\1T\2\3", data)


def read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the bytes of a file, decompressed if it is compressed with gzip.

    Args:
        path: The file.
        most: Largest accepted number of bytes; `MAX_BYTES` by default.

    Returns:
        The bytes.

    Raises:
        DataError: If the file cannot be read, or has more bytes.
    """
    limit = MAX_BYTES if most is None else most
    try:
        with open(path, "rb") as file:
            is_gzip = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            if is_gzip:
                with gzip.open(file) as unpacked:
                    data = _at_most(unpacked, limit + 1)
            else:
                data = _at_most(file, limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {reason}; give a text file") from error
    if len(data) > limit:
        raise DataError(f"{path} has more than {limit:,} bytes: a trace may have {limit:,}")
    return data


def _at_most(file: IO[bytes] | gzip.GzipFile, most: int) -> bytes:
    """Return the first bytes of a file, without memory for more than it has."""
    data = bytearray()
    while len(data) < most:
        chunk = file.read(min(_CHUNK, most - len(data)))
        if not chunk:
            break
        data += chunk
    return bytes(data)


def _check_utf8(path: Path, data: bytes) -> None:
    """Refuse bytes that are not UTF-8, without memory for a second copy."""
    if data.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    begin = 0
    try:
        for begin in range(0, len(data), _CHUNK):
            decoder.decode(data[begin : begin + _CHUNK])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, begin + error.start) + 1
        raise DataError(f"{path}, line {line}: this is not UTF-8 text; save it as UTF-8") from error


def _decoded(path: Path, data: bytes) -> bytes:
    """Return a text as UTF-8 without a byte-order mark."""
    if data.startswith(codecs.BOM_UTF8):
        return data[len(codecs.BOM_UTF8) :]
    if not data.startswith(_UTF16):
        return data
    try:
        return data.decode("utf-16").encode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-16 text, as its first bytes say") from error
