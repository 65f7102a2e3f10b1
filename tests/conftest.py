"""Fixtures that several tests use."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


@pytest.fixture
def shared_data() -> Callable[[str], pathlib.Path]:
    """Path of a file of the reference data beside the checkout, or skip."""

    def find(name: str) -> pathlib.Path:
        path = ROOT.parent / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"reference data {name!r} is not beside this checkout")
        return path

    return find
