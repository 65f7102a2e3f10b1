"""Bad input to elements, terms and predictions: one line that says what and where."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from probcalc.distribution import Empirical
from probcalc.element import Element, idle, transition
from probcalc.errors import CompositionError, InputError, ProbcalcError
from probcalc.prediction import predict
from probcalc.shared import Shared
from probcalc.term import Parallel, Sequential


def element(name: Any = "rms", **fields: Any) -> Element:
    given = {"time": 2.0, "static_power": 60.0, "device": "gpu0"} | fields
    return Element(name, **given)


def runs(**fields: Any) -> Element:
    given = {
        "time": [1.0, 2.0],
        "energy": [70.0, 150.0],
        "static_power": 60.0,
        "device": "gpu0",
    } | fields
    return Element.from_runs("rms", **given)


HERE = "element 'rms'"

#: what is wrong -> (call, pattern of the message)
BAD: dict[str, tuple[Callable[[], Any], str]] = {
    # names and devices
    "no name": (lambda: element(""), "expected a name"),
    "name that is no text": (lambda: element(7), "expected a name, got 7"),
    "no device": (lambda: element(device=None), f"{HERE}: give one of device"),
    "two ways to state devices": (
        lambda: element(devices=["gpu0"]),
        f"{HERE}: give one of device and devices",
    ),
    "empty device list": (lambda: element(device=[]), f"{HERE}: no device"),
    "device twice": (lambda: element(device=["a", "a"]), "'a' is stated twice"),
    "device that is no text": (lambda: element(device=[3]), "device names, got 3"),
    "device that is a number": (lambda: element(device=3), "device names, got 3"),
    # static power
    "negative static power": (
        lambda: element(static_power=-1.0),
        f"{HERE}: static power is -1.0",
    ),
    "static power NaN": (lambda: element(static_power=math.nan), "static power is nan"),
    "static power as text": (lambda: element(static_power="60 W"), "'60 W', expected"),
    "static power missing for a device": (
        lambda: element(device=["a", "b"], static_power={"a": 60.0}),
        r"stated for \['a'\], expected its devices \['a', 'b'\]",
    ),
    "static power that is a flag": (lambda: element(static_power=True), "is True"),
    # laws
    "negative time": (
        lambda: element(time=-2.0),
        f"{HERE}, time is -2 s, expected >= 0",
    ),
    "NaN time": (lambda: element(time=math.nan), f"{HERE}, time: expected a finite"),
    "infinite time": (lambda: element(time=math.inf), f"{HERE}, time: .*finite"),
    "time as text": (lambda: element(time="2 ms"), f"{HERE}, time: expected a number"),
    "time as a list": (lambda: element(time=[1.0, 2.0]), "Empirical"),
    "negative run": (
        lambda: element(time=Empirical(np.array([1.0, -0.5]))),
        rf"{HERE}, time is negative in run 1 \(-0.5 s\) of 2",
    ),
    "law below zero": (
        lambda: element(time=stats.norm(1.0, 1.0)),
        f"{HERE}, time is negative with probability 0.16.*truncate",
    ),
    "parameters SciPy refuses": (
        lambda: element(time=stats.lognorm(-1.0)),
        f"{HERE}, time: lognorm law",
    ),
    "negative dynamic energy": (
        lambda: element(dynamic_energy=-1.0),
        f"{HERE}, dynamic energy is -1 J",
    ),
    # runs
    "no runs": (lambda: runs(time=[], energy=[]), f"{HERE}, time: no samples"),
    "lengths differ": (
        lambda: runs(energy=[70.0]),
        f"{HERE}: 2 times and 1 energies",
    ),
    "NaN energy": (
        lambda: runs(energy=[70.0, math.nan]),
        f"{HERE}, energy: sample 1 is NaN",
    ),
    "infinite run": (
        lambda: runs(time=[1.0, math.inf]),
        f"{HERE}, time: sample 1 is .*inf",
    ),
    "negative measured time": (
        lambda: runs(time=[1.0, -2.0]),
        rf"{HERE}, time is negative in run 1 \(-2 s\)",
    ),
    "negative measured energy": (
        lambda: runs(energy=[-70.0, 150.0]),
        rf"{HERE}, energy is negative in run 0 \(-70 J\)",
    ),
    "d < 0 with the run named": (
        lambda: runs(energy=[70.0, 110.0]),
        rf"{HERE}: dynamic energy .* in run 1 \(-10 J\) of 2; static power 60 W.*high",
    ),
    "many runs with d < 0": (
        lambda: runs(time=[2.0] * 9, energy=[1.0] * 9),
        "run 0 .*run 1 .*run 2 .*and 6 more of 9",
    ),
    "matrix of runs": (lambda: runs(time=[[1.0], [2.0]]), "one-dimensional"),
    "runs as texts": (lambda: runs(time=["a", "b"]), f"{HERE}, time: .*numbers"),
    "unknown way with conflicts": (
        lambda: runs(conflicts="clip"),
        "conflicts is 'clip', expected 'raise' or 'keep'",
    ),
    "unknown way with NaN": (lambda: runs(nan="zero"), "nan is 'zero', expected"),
    "too few block labels": (
        lambda: runs(blocks=["a"]),
        f"{HERE}: 1 block labels for 2 runs",
    ),
    "block labels of two kinds": (
        lambda: runs(blocks=["a", 1]),
        "block labels of different kinds",
    ),
    # other fields
    "grain of nothing": (lambda: element(grain=0), f"{HERE}, grain: .*>= 1, got 0"),
    "grain that is no number": (lambda: element(grain=2.5), "grain: .*got 2.5"),
    "operating point that is a set": (
        lambda: element(operating_point={1, 2}),
        f"{HERE}, operating point: expected a mapping",
    ),
    "shared factor by name alone": (
        lambda: element(shared=["gain"]),
        f"{HERE}: expected Shared factors",
    ),
    "most below what occurs": (
        lambda: element(time_max=1.0),
        f"{HERE}, time_max is 1.0, .*largest is 2",
    ),
    "most that is no number": (lambda: runs(energy_max="x"), "energy_max is 'x'"),
    # shared factors
    "factor without a name": (lambda: Shared("", 1.0), "expected a name"),
    "factor of an unknown kind": (
        lambda: Shared("g", 1.0, acts_on="power"),  # type: ignore[arg-type]
        "'g': acts_on is 'power', expected one of 'energy'",
    ),
    "factor in an unknown way": (
        lambda: Shared("g", 1.0, how="add"),  # type: ignore[arg-type]
        "'g': how is 'add'",
    ),
    "negative factor": (lambda: Shared("g", stats.norm(1, 0.1)), "must be positive"),
    "factor of zero": (lambda: Shared("g", 0.0), "leaves nothing"),
    "two factors of one name": (
        lambda: element(shared=[Shared("g", 1.0), Shared("g", 2.0)]),
        "'g' is stated in two ways",
    ),
    # terms
    "parallel across devices": (
        lambda: element() | element("far", device="gpu1"),
        r"'rms' is on 'gpu0' and 'far' is on 'gpu1'; use & ",
    ),
    "multi-device parallel on one device": (
        lambda: element() & element("far"),
        r"'rms' is on 'gpu0' and 'far' is on 'gpu0': they share 'gpu0'; use \| ",
    ),
    "parallel at two operating points": (
        lambda: element(operating_point=1) | element("b", operating_point=2),
        "'rms' is at 1 and 'b' at 2",
    ),
    "beside a transition": (
        lambda: (
            element() | transition(1, 2, time=0.1, static_power=60.0, device="gpu0")
        ),
        "one operating point",
    ),
    "operand that is a number": (
        lambda: operator.rshift(element(), 3),
        "operand of >> after 'rms': expected an element or a term, got int 3",
    ),
    "part that is a text": (
        lambda: Sequential([element(), "b"]),  # type: ignore[list-item]
        "expected an element or a term, got str",
    ),
    "no parts": (lambda: Parallel([]), "no parts"),
    "zero repeats": (lambda: element() ** 0, "repeat of 'rms': .*>= 1, got 0"),
    "half a repeat": (lambda: element().repeat(1.5), "got 1.5"),  # type: ignore[arg-type]
    # predictions
    "prediction of a number": (lambda: predict(3.0), "expected an element or a term"),  # type: ignore[arg-type]
    "unknown method": (
        lambda: predict(element(), "guess"),  # type: ignore[arg-type]
        "unknown method 'guess', expected one of 'auto', 'exact', 'moments'",
    ),
    "baseline of an unknown device": (
        lambda: predict(element(), baselines={"tpu": 1.0}),
        "unknown device 'tpu'",
    ),
    "baseline that is no power": (
        lambda: predict(element(), baselines={"gpu0": math.inf}),
        "baseline of 'gpu0': static power is inf",
    ),
    "different static powers beside each other": (
        lambda: predict(element() | element("b", static_power=90.0)),
        "device 'gpu0': static power is 60 W for 'rms' and 90 W for 'b'",
    ),
    "limit that is no number": (
        lambda: predict(element()).budget("3.4 J"),  # type: ignore[arg-type]
        "limit is '3.4 J', expected a number of J",
    ),
    "infinite limit": (lambda: predict(element()).budget(math.inf), "limit is inf"),
    "level outside (0, 1)": (
        lambda: predict(element()).energy.quantile(1.0),
        "strictly between 0 and 1",
    ),
    "executions that are no number": (
        lambda: predict(element()).over(2.5),  # type: ignore[arg-type]
        "executions: .*got 2.5",
    ),
    "negative idle time": (
        lambda: idle(-1.0, device="gpu0", static_power=60.0),
        "element 'idle', time is -1 s",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_line(case):
    call, pattern = BAD[case]
    with pytest.raises(InputError) as caught:
        call()
    message = str(caught.value)
    assert isinstance(caught.value, ProbcalcError)
    assert "\n" not in message
    assert len(message) < 300
    assert re.search(pattern, message), message


def test_there_are_many_kinds():
    assert len(BAD) >= 25


def test_device_rules_have_their_own_type():
    for case in ("parallel across devices", "parallel at two operating points"):
        with pytest.raises(CompositionError):
            BAD[case][0]()


def test_a_long_value_is_not_repeated_whole():
    with pytest.raises(InputError) as caught:
        element(time="x" * 10_000)
    assert len(str(caught.value)) < 300
