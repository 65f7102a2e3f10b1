"""Elements: what is kept, what is derived, what `from_runs` knows of its runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.distribution import Constant, Empirical
from probcalc.element import Element, idle, transition
from probcalc.errors import InputError
from probcalc.shared import Shared


def element(name: str = "e", **fields: Any) -> Element:
    given: dict[str, Any] = {
        "time": 2.0,
        "static_power": 60.0,
        "device": "gpu0",
    } | fields
    return Element(name, **given)


def test_numbers_are_constant_laws():
    e = element(time=2, dynamic_energy=3)
    assert e.time == Constant(2.0)
    assert e.dynamic_energy == Constant(3.0)
    assert e.energy.mean() == pytest.approx(60.0 * 2.0 + 3.0)


def test_scipy_laws_of_both_kinds_are_laws():
    new = stats.make_distribution(stats.lognorm)(s=0.1)
    e = element(time=stats.lognorm(0.1), dynamic_energy=new)
    assert e.time.mean() == pytest.approx(np.exp(0.005))
    assert e.dynamic_energy is new


def test_normal_law_is_accepted_where_its_mass_below_zero_is_negligible():
    assert element(time=stats.norm(4e-3, 1e-4)).time.mean() == pytest.approx(4e-3)


def test_signature_fields_are_kept_and_hashable():
    e = element(
        workload={"batch": 8, "shape": [128, 64]},
        implementation="flash",
        operating_point={"sm_clock": 1410},
        metadata={"driver": "550"},
        shared=Shared("gain", 1.0),
    )
    assert e.workload == (("batch", 8), ("shape", (128, 64)))
    assert e.operating_point == (("sm_clock", 1410),)
    assert e.metadata["driver"] == "550"
    assert [factor.name for factor in e.shared] == ["gain"]
    assert hash(e) != hash(element())
    assert e != element()


def test_elements_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        element().name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        element().metadata["x"] = 1  # type: ignore[index]


def test_static_power_of_several_devices_is_their_sum():
    even = element(device=("gpu0", "gpu1"), static_power=120.0)
    assert even.powers == {"gpu0": 60.0, "gpu1": 60.0}
    stated = element(device=["a", "b"], static_power={"a": 50.0, "b": 70.0})
    assert stated.static_power == pytest.approx(120.0)


def runs(**fields: Any) -> Element:
    given: dict[str, Any] = {
        "time": [1.0, 2.0, 3.0],
        "energy": [70.0, 150.0, 200.0],
        "static_power": 60.0,
        "device": "gpu0",
    }
    return Element.from_runs("rope", **(given | fields))


def test_runs_keep_pairs_as_measured():
    e = runs(blocks=["a", "a", "b"])
    assert e.runs is not None
    np.testing.assert_array_equal(e.runs.time, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(e.runs.energy, [70.0, 150.0, 200.0])
    np.testing.assert_array_equal(e.runs.dynamic_energy, [10.0, 30.0, 20.0])
    assert e.runs.blocks == ("a", "a", "b")
    assert isinstance(e.time, Empirical)
    assert e.time.blocks == ("a", "a", "b")
    assert not e.runs.time.flags.writeable
    assert not e.runs.dynamic_energy.flags.writeable


def test_energy_of_measured_runs_is_what_was_measured():
    assert isinstance(runs().energy, Empirical)
    np.testing.assert_array_equal(np.sort([70.0, 150.0, 200.0]), runs().energy.atoms)  # type: ignore[attr-defined]


def test_runs_are_coupled_only_if_both_vary():
    assert runs().coupled
    assert not runs(time=[2.0, 2.0, 2.0], static_power=30.0).coupled
    assert not runs(energy=[61.0, 121.0, 181.0]).coupled
    assert not element(time=stats.lognorm(0.1)).coupled


def test_rounding_of_the_difference_is_no_energy():
    times = [0.1, 0.7, 1.1]
    exact = runs(time=times, energy=[60.0 * t for t in times])
    assert exact.runs is not None
    np.testing.assert_array_equal(exact.runs.dynamic_energy, 0.0)


def test_conflicting_runs_are_kept_on_request_and_never_clipped():
    e = runs(energy=[70.0, 110.0, 200.0], conflicts="keep")
    assert e.runs is not None
    assert e.runs.dynamic_energy[1] == -10.0
    assert e.calibration_conflict == (1,)
    assert e.dynamic_energy.support()[0] == -10.0
    assert runs().calibration_conflict == ()


def test_negative_dynamic_energy_names_runs_values_and_cause():
    with pytest.raises(InputError) as caught:
        runs(energy=[70.0, 110.0, 170.0])
    message = str(caught.value)
    assert "element 'rope'" in message
    assert "run 1 (-10 J)" in message
    assert "run 2 (-10 J)" in message
    assert "calibrated too high" in message
    assert "\n" not in message


def test_missing_runs_are_left_out_in_pairs_on_request():
    e = runs(
        time=[1.0, np.nan, 3.0, 4.0],
        energy=[70.0, 150.0, 200.0, np.nan],
        blocks=[1, 1, 2, 2],
        nan="omit",
    )
    assert e.runs is not None
    np.testing.assert_array_equal(e.runs.energy, [70.0, 200.0])
    assert e.runs.blocks == (1, 2)


def test_idle_draws_static_power_and_nothing_else():
    e = idle(0.5, device="gpu0", static_power=60.0)
    assert e.energy.mean() == 30.0
    assert e.dynamic_energy == Constant(0.0)


def test_transition_states_both_points():
    e = transition(1410, 990, time=0.03, static_power=60.0, device="gpu0")
    assert [point.value for point in e.points] == [1410, 990]
    assert e.name == "1410->990"


def test_repr_is_short_and_names_runs():
    assert repr(runs()) == "<Element 'rope' on gpu0, 3 runs>"
    assert str(element("rms")) == "rms"


@pytest.mark.parametrize("law", [2.0, Empirical(np.array([1.0, 2.0]))])
def test_shared_factor_keeps_its_law(law):
    factor = Shared("gain:gpu0", law)
    assert factor.same_as(Shared("gain:gpu0", law))
    assert not factor.same_as(Shared("gain:gpu0", law, acts_on="time"))
    assert not factor.same_as(Shared("gain:gpu0", 3.0))
