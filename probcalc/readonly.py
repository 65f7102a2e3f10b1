"""What cannot be changed, and can still be copied and pickled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

__all__ = ["ReadOnly", "reduced"]

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ReadOnly(Mapping[K, V]):
    """A dictionary that cannot be changed.

    As ``types.MappingProxyType``, which can be neither copied nor pickled.

    Parameters
    ----------
    _of : dict
        Not copied: whoever hands it over leaves it alone.

    Examples
    --------
    >>> ReadOnly({"gpu0": 60.0})
    ReadOnly({'gpu0': 60.0})
    """

    _of: dict[K, V]

    def __getitem__(self, key: K, /) -> V:
        """Value of a key."""
        return self._of[key]

    def __iter__(self) -> Iterator[K]:
        """Keys, in their order."""
        return iter(self._of)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._of)

    def __repr__(self) -> str:
        """Show what it holds."""
        return f"ReadOnly({self._of!r})"


def reduced(made: Any) -> tuple[Any, ...]:
    """Reduce a frozen dataclass, for its ``__reduce__``; its arrays stay read-only.

    NumPy does not keep that of an array that it copies or unpickles.
    """
    return _restored, (type(made), [getattr(made, f.name) for f in fields(made)])


def _restored(kind: type, values: Iterable[Any]) -> Any:
    made = object.__new__(kind)
    for field, value in zip(fields(kind), values, strict=True):
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
        object.__setattr__(made, field.name, value)
    return made
