"""The studies that prove the package, by name."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from probcalc._version import __version__
from probcalc.errors import InputError

__all__ = ["STUDIES", "Study", "run"]


@dataclass(frozen=True, slots=True)
class Study:
    """What a study found.

    Attributes
    ----------
    name : str
    table : str
        In Markdown.
    record : mapping
        As plain data, with seed, repeats and versions.
    figure : callable or None
        Draws it.
    """

    name: str
    table: str
    record: Mapping[str, Any]
    figure: Callable[[], Any] | None = None


#: Table, plain data, and what draws it.
Found = tuple[str, Any, Callable[[], Any] | None]


def _coverage(records: Path | None, repeats: int, seed: int) -> Found:
    from probcalc.validation import coverage, study_pictures

    del records
    rows = list(coverage.coverage(seed=seed, repeats=repeats))
    return (
        coverage.as_table(rows),
        [row._asdict() for row in rows],
        lambda: study_pictures.of_coverage(rows),
    )


def _error_rates(records: Path | None, repeats: int, seed: int) -> Found:
    from probcalc.validation import errorrates, study_pictures

    del records
    rows = list(errorrates.error_rates(seed=seed, repeats=repeats))
    return (
        errorrates.as_table(rows),
        [row._asdict() for row in rows],
        lambda: study_pictures.of_error_rates(rows),
    )


def _reduction(records: Path | None, repeats: int, seed: int) -> Found:
    from probcalc.validation import reductions

    del records
    found = reductions.reductions(seed=seed, repeats=repeats)
    return reductions.as_table(found), found._asdict(), None


def _perseus(records: Path | None, repeats: int, seed: int) -> Found:
    from probcalc.validation import perseus

    del repeats, seed
    found = [g for m in ("bert", "gpt3xl") for g in perseus.gaps(_there(records), m)]
    return perseus.as_table(found), [g._asdict() for g in found], None


def _verdicts(records: Path | None, repeats: int, seed: int) -> Found:
    from probcalc.validation import endtoend, study_pictures

    del repeats
    found = endtoend.judged(_there(records), "bert", seed=seed)
    return (
        endtoend.as_table(found),
        endtoend.record(found),
        lambda: study_pictures.of_verdicts(found),
    )


def _there(records: Path | None) -> Path:
    if records is None or not records.is_dir():
        raise InputError(
            f"--records: {str(records)!r} found; expected the folder of the study's "
            "public records, as its documentation names it"
        )
    return records


#: Name, repeats without `--repeats`, and what it runs.
STUDIES: Mapping[str, tuple[int, Callable[[Path | None, int, int], Found]]] = (
    MappingProxyType(
        {
            "coverage": (1000, _coverage),
            "error-rates": (1000, _error_rates),
            "reduction": (10_000, _reduction),
            "perseus": (1, _perseus),
            "perseus-verdicts": (1, _verdicts),
        }
    )
)


def run(
    name: str,
    *,
    records: str | Path | None = None,
    repeats: int | None = None,
    seed: int = 0,
) -> Study:
    """Run a study.

    Parameters
    ----------
    records : str or Path, optional
        Folder of public records, for the studies that read some.
    repeats : int, optional
        For those that simulate.

    Raises
    ------
    InputError
        No such study; repeats below 20; no records.
    """
    if name not in STUDIES:
        raise InputError(f"no study {name!r:.60}; there are {', '.join(STUDIES)}")
    usual, study = STUDIES[name]
    count = usual if repeats is None else repeats
    if usual > 1 and count < 20:
        raise InputError(f"study {name!r}: repeats is {count}, expected at least 20")
    place = None if records is None else Path(records)
    table, found, figure = study(place, count, seed)
    record = {
        "study": name,
        "seed": seed,
        "repeats": count,
        "version": __version__,
        "python": platform.python_version(),
        "found": found,
    }
    return Study(name, table, record, figure)
