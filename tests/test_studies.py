"""The committed studies come out as recorded, where their data lies."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import pytest

from probcalc.validation import perseus, stragglers


def test_the_gap_of_bert_is_as_recorded(
    shared_data: Callable[[str], pathlib.Path],
) -> None:
    folder = shared_data("energy/perseus_sosp24/measured_raw")
    found = list(perseus.gaps(folder, "bert"))
    assert [g.clocks for g in found] == ["0", "2", "10", "20", "29"]
    for g in found:
        assert 6.3 < g.measured < 6.96
        assert 0.375 < g.bare < 0.415
        assert 0.11 < g.loaded < 0.122
        assert g.loaded_sd < 0.006


@pytest.mark.slow
def test_microbatch_rows_are_chosen_for_the_uneven_job(
    shared_data: Callable[[str], pathlib.Path],
) -> None:
    pytest.importorskip("pyarrow")
    folder = shared_data("dag/bytedance_straggler")
    fit = stragglers.fitted(folder, "SE", samples=2048)
    assert (fit.verdict, fit.chosen) == ("chosen", "microbatch rows, own rank")
    by_name: dict[str, list[object]] = {}
    for score in fit.scores:
        by_name.setdefault(score.grouping, []).append(score)
        share = score.above / score.steps
        match score.grouping:
            case "microbatch rows, own rank":
                assert abs(score.mean_error) < 0.03
                assert 0.05 <= share <= 0.20
            case "independent, pooled":
                assert score.mean_error == pytest.approx(-0.11, abs=0.01)
                assert 0.8 <= share <= 0.9
            case "means only":
                assert score.mean_error == pytest.approx(-0.25, abs=0.01)
            case "rows within one step":
                assert 0.07 < score.mean_error < 0.10
            case _:
                assert score.mean_error == pytest.approx(-0.105, abs=0.01)
    assert len(by_name) == 5


@pytest.mark.slow
def test_the_unsteady_job_is_not_fitted(
    shared_data: Callable[[str], pathlib.Path],
) -> None:
    pytest.importorskip("pyarrow")
    fit = stragglers.fitted(shared_data("dag/bytedance_straggler"), "ST", samples=1024)
    assert (fit.verdict, fit.chosen) == ("non-stationary", None)
    assert "sd 0.0724 and 0.0129" in fit.reason
