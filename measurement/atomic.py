"""Files that appear whole or not at all, and folders that one process works on."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["locked", "write_atomic"]


def write_atomic(path: Path, content: bytes) -> None:
    """Write a file that is there whole, or as it was, whatever happens in between."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the name itself, not only what it names
    finally:
        os.close(folder)


@contextmanager
def locked(path: Path) -> Iterator[IO[bytes]]:
    """Wait for a lock and hold it; processes that inherit the file hold it too.

    The lock goes with the open file: it is let go when the last of them has closed it
    or ended, in whatever way.
    """
    import fcntl

    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
