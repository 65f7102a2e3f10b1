"""Predictions beside measurements in ArviZ, and the picture of their PIT values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.validation.arviz_structures import (
    pit_values,
    prediction_in_arviz,
    save_pit_ecdf,
)
from probcalc.validation.deviation import predicted
from tests.measured_runs import energies, runs


def test_both_groups_and_a_picture(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    element = runs(rng, blocks=8, each=25)
    direct = energies(runs(rng, blocks=8, each=25))
    ours = predicted(element, samples=2000, resamples=6, seed=1)
    tree = prediction_in_arviz(ours, direct, draws=40)
    drawn = tree["posterior_predictive"]["energy"]
    assert dict(drawn.sizes) == {"chain": 4, "draw": 40, "run": 200}
    assert drawn.attrs["units"] == "J"
    assert float(drawn.mean()) == pytest.approx(1.6, rel=0.01)
    seen = tree["observed_data"]
    assert np.array_equal(np.asarray(seen["energy"]), direct.values)
    u = pit_values(ours, direct)
    assert np.all((u >= 0.0) & (u <= 1.0))
    assert abs(u.mean() - 0.5) < 0.1
    far = direct.with_values(direct.values + 1.0)
    assert pit_values(ours, far).min() == 1.0
    for ending in ("svg", "png"):
        file = tmp_path / f"pit.{ending}"
        save_pit_ecdf(ours, direct, str(file))
        assert file.stat().st_size > 1000
    with pytest.raises(InputError, match=r"expected a \.png"):
        save_pit_ecdf(ours, direct, str(tmp_path / "pit.exe"))
    with pytest.raises(InputError, match="draws is 0"):
        prediction_in_arviz(ours, direct, draws=0)
