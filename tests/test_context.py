"""Contexts, contextual signatures, and the algebra that depends on context."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats

from probcalc import Element, idle, predict
from probcalc.context import NULL_CONTEXT, Context, StateVariable, Trace
from probcalc.contextual import characterised, signature_of, traced
from probcalc.errors import InputError
from probcalc.mechanisms import Effect, Mechanism, cache, power_delivery, thermal
from probcalc.mechanisms.thermal import RISE
from probcalc.propagation import predict_in_context
from probcalc.validation.insensitivity import Shift
from probcalc.validation.reduction import reduction_bound

ON = {"static_power": 60.0, "device": "gpu0"}
THERMAL = thermal(
    resistance=0.1, time_constant=30.0, leakage=0.3, threshold=10.0, throttling=0.01
)
hot = Element("hot", time=20.0, dynamic_energy=6000.0, **ON)
sensitive = Element("sensitive", time=10.0, dynamic_energy=500.0, **ON)


def bound(found):
    """Bound of the reduction from the realised shifts, idle devices on top."""
    history, interference = (
        {name: Shift(*shift) for name, shift in shifts.items()}
        for shifts in (found.history, found.interference)
    )
    made = reduction_bound(found.plan, history, interference)
    return made.energy + found.idle_energy, made.time


def energy(term, *mechanisms, **options):
    found = predict_in_context(term, mechanisms=mechanisms or [THERMAL], **options)
    return float(found.energy.mean())


def test_an_element_in_the_null_context_is_as_it_was_measured():
    found = predict_in_context(hot, mechanisms=[THERMAL])
    assert found.energy.mean() == predict(hot).energy.mean()
    assert found.context_energy.mean() == 0.0


def test_sequential_composition_does_not_commute():
    first = predict_in_context(hot >> sensitive, mechanisms=[THERMAL])
    other = predict_in_context(sensitive >> hot, mechanisms=[THERMAL])
    # Hot first: it leaves 14.7 K, beyond the threshold, and the other one throttles.
    R, tau = THERMAL.parameters.resistance[0], THERMAL.parameters.time_constant[0]
    rise = R * 300.0 * (1.0 - math.exp(-20.0 / tau))
    assert first.entry_context("sensitive").values[RISE] == pytest.approx(rise)
    assert first.time.mean() == pytest.approx(30.0 + 10.0 * 0.01 * (rise - 10.0))
    assert other.time.mean() == 30.0
    assert first.energy.mean() - other.energy.mean() > 50.0
    # Both reduce to one value, each within its own bound.
    assert first.reduced.energy.mean() == other.reduced.energy.mean()
    for found in (first, other):
        limit, later = bound(found)
        assert abs(found.context_energy.mean()) <= limit
        assert abs(found.context_time.mean()) <= later
    difference = abs(first.energy.mean() - other.energy.mean())
    assert difference <= bound(first)[0] + bound(other)[0]


def test_monotonicity_fails_in_context_and_holds_in_the_reduced_algebra():
    reuse = traced(
        Element("reuse", time=2.0, dynamic_energy=400.0, **ON),
        Trace({"uses weights": 8e6, "traffic": 0.0}),
    )
    cheap = traced(
        Element("cheap", time=1.0, dynamic_energy=100.0, **ON), Trace({"traffic": 0.0})
    )
    # Costlier in time and in energy, but it leaves the weights behind.
    dear = traced(
        Element("dear", time=1.01, dynamic_energy=101.0, **ON),
        Trace({"uses weights": 8e6, "traffic": 0.0}),
    )
    warm = cache(
        capacity=4e7, sets=["weights"], time_per_byte=5e-8, energy_per_byte=1e-5
    )
    assert energy(cheap, warm) < energy(dear, warm)
    assert energy(cheap >> reuse, warm) > energy(dear >> reuse, warm)
    assert predict(cheap >> reuse).energy.mean() < predict(dear >> reuse).energy.mean()
    found = predict_in_context(dear >> reuse, mechanisms=[warm])
    assert found.time.mean() == pytest.approx(1.01 + 2.0 - 0.4)
    assert found.context_energy.mean() == pytest.approx(-80.0 - 60.0 * 0.4)
    assert abs(found.context_energy.mean()) <= bound(found)[0]


def test_groupings_are_equivalent_in_context():
    a, b, c = hot, sensitive, Element("third", time=5.0, dynamic_energy=900.0, **ON)
    left, right = ((a >> b) >> c) >> (a | b), a >> (b >> (c >> (a | b)))
    assert energy(left) == energy(right)
    assert energy((a | b) | c) == energy(a | (b | c))
    assert energy(a | b) == pytest.approx(energy(b | a), rel=1e-12)


def test_elements_that_start_together_share_the_entry_context():
    found = predict_in_context(hot >> (sensitive | hot), mechanisms=[THERMAL])
    names = [n for n in found.plan.names if n != "hot#1"]
    entries = {found.entry_context(n).values[RISE] for n in names}
    assert len(entries) == 1
    beside = found.runtime_context("sensitive")
    assert [o.element for o in beside.overlaps] == ["hot"]
    assert beside.overlaps[0].start == 20.0
    assert found.runtime_context("hot#1").alone
    # The exit context has the heat of both: as one element that draws both at once.
    one = Element("one", time=10.0, dynamic_energy=500.0 + 3000.0, **ON)
    rest = Element("rest", time=10.0, dynamic_energy=3000.0, **ON)
    linear = thermal(resistance=0.1, time_constant=30.0)
    probe = Element("probe", time=1.0, **ON)
    ends = [
        predict_in_context(term, mechanisms=[linear]).entry_context("probe")
        for term in ((sensitive | hot) >> probe, one >> rest >> probe)
    ]
    assert ends[0].values[RISE] == pytest.approx(ends[1].values[RISE], rel=1e-12)


def test_idle_elements_cool():
    def met(gap):
        rest = idle(gap, device="gpu0", static_power=60.0)
        found = predict_in_context(hot >> rest >> sensitive, mechanisms=[THERMAL])
        return found.entry_context("sensitive").values[RISE]

    tau = THERMAL.parameters.time_constant[0]
    assert met(50.0) == pytest.approx(met(0.0) * math.exp(-50.0 / tau))


def test_a_repeated_element_reaches_its_fixed_point():
    found = predict_in_context(hot**60, mechanisms=[THERMAL])
    R, tau = THERMAL.parameters.resistance[0], THERMAL.parameters.time_constant[0]
    # x = x e^(-T/tau) + R (d / T)(1 - e^(-T/tau)) with T = T0 (1 + k (x - limit)):
    # the rise at rest is R times the mean draw, whatever T is.
    x, T = 25.0, 20.0
    for _ in range(500):
        T = 20.0 * (1.0 + 0.01 * max(x - 10.0, 0.0))
        x += 0.5 * (R * 6000.0 / T - x)
    trace = found.trace
    assert trace is not None
    assert found.entry_context("hot#60").values[RISE] == pytest.approx(x, rel=1e-6)
    assert float(trace.full[59, 0]) == pytest.approx(T, rel=1e-6)
    assert tau > 0.0


def test_contexts_of_devices_are_taken_from_the_caller():
    warm = {"gpu0": Context({RISE: 20.0})}
    found = predict_in_context(sensitive, mechanisms=[THERMAL], contexts=warm)
    assert found.time.mean() == pytest.approx(10.0 * 1.1)
    assert found.met[RISE] == (20.0, 20.0)


def line(time_slope=0.01, energy_slope=2.0, power_slope=0.5, rises=(0.0, 20.0, 40.0)):
    """Return an element whose signature is linear in the rise."""
    return characterised(
        [
            (
                Context({RISE: x}),
                Element(
                    "e",
                    time=1.0 + time_slope * x,
                    dynamic_energy=100.0 + energy_slope * x,
                    static_power=60.0 + power_slope * x,
                    device="gpu0",
                ),
            )
            for x in rises
        ]
    )


LINEAR = thermal(resistance=0.1, time_constant=30.0)


def test_contextual_signatures_are_interpolated():
    found = predict_in_context(
        line(), mechanisms=[LINEAR], contexts={"gpu0": Context({RISE: 30.0})}
    )
    assert found.time.mean() == pytest.approx(1.3)
    assert found.dynamic_energy.mean() == pytest.approx(160.0)
    assert found.static_energy.mean() == pytest.approx(75.0 * 1.3)
    # A response along a line leaves nothing over.
    assert found.interpolation == pytest.approx((0.0, 0.0), abs=1e-9)


def test_the_error_of_interpolation_is_included():
    curve = characterised(
        [
            (Context({RISE: x}), Element("e", time=1.0 + (x / 40.0) ** 2, **ON))
            for x in (0.0, 20.0, 40.0)
        ]
    )
    signature = signature_of(curve)
    assert signature is not None
    # Left out, 1.25 s at 20 K is interpolated as 1.5 s.
    assert signature.gap.time == pytest.approx(0.25)
    found = predict_in_context(
        curve, mechanisms=[LINEAR], contexts={"gpu0": Context({RISE: 10.0})}
    )
    q = found.time_quantile(0.5)
    assert q.kind == "estimate"
    assert q.lower <= 1.0 + (10.0 / 40.0) ** 2 <= q.upper
    assert q.upper - q.lower == pytest.approx(0.5)


def test_a_signature_takes_the_place_of_the_mechanism_it_was_measured_over():
    both = predict_in_context(
        line(), mechanisms=[THERMAL], contexts={"gpu0": Context({RISE: 20.0})}
    )
    # Throttling is in the measured times; it is not put on top.
    assert both.time.mean() == pytest.approx(1.2)


def test_quantiles_move_between_contexts():
    element = characterised(
        [
            (Context({RISE: x}), Element("e", time=stats.lognorm(s, scale=m), **ON))
            for x, m, s in ((0.0, 1.0, 0.1), (20.0, 2.0, 0.3))
        ]
    )
    at = {"gpu0": Context({RISE: 5.0})}
    found = predict_in_context(
        element, mechanisms=[LINEAR], contexts=at, samples=4000, seed=1
    )
    for p in (0.1, 0.5, 0.9):
        z = stats.norm.ppf(p)
        right = 0.75 * math.exp(0.1 * z) + 0.25 * 2.0 * math.exp(0.3 * z)
        density = float(stats.norm.pdf(z))
        wide = 6.2 * math.sqrt(p * (1 - p) / 4000) / density * 0.25 * float(right)
        assert found.time.quantile(p).value == pytest.approx(right, abs=wide)


def test_signatures_over_two_variables():
    noise = Mechanism(
        name="noise",
        cause="a test",
        timescale="none",
        protocol="none",
        variables=(StateVariable("noise", "W"),),
        run=lambda state, load: {"noise": state["noise"]},
    )
    points = [(0.0, 0.0), (20.0, 0.0), (0.0, 10.0), (20.0, 10.0), (10.0, 5.0)]
    element = characterised(
        [
            (
                Context({RISE: x, "noise": y}),
                Element("e", time=1.0 + 0.01 * x + 0.1 * y, **ON),
            )
            for x, y in points
        ]
    )

    def time(x, y):
        at = {"gpu0": Context({RISE: x, "noise": y})}
        found = predict_in_context(element, mechanisms=[LINEAR, noise], contexts=at)
        return float(found.time.mean())

    assert time(4.0, 3.0) == pytest.approx(1.34)
    assert time(20.0, 10.0) == pytest.approx(2.2)
    with pytest.raises(InputError, match=r"element 'e': its context has 'noise' = 11"):
        time(4.0, 11.0)


def test_contexts_outside_the_characterised_set_are_refused():
    with pytest.raises(
        InputError,
        match=r"'e': its context has 'temperature rise' = 41, characterised from 0 to",
    ):
        predict_in_context(
            line(), mechanisms=[LINEAR], contexts={"gpu0": Context({RISE: 41.0})}
        )
    # Reached along the way, too.
    with pytest.raises(InputError, match=r"element 'e': its context has"):
        predict_in_context(
            Element("oven", time=500.0, dynamic_energy=5e5, **ON) >> line(),
            mechanisms=[LINEAR],
            baselines={"gpu0": 60.0},
        )


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([(Context({RISE: 0.0}), hot)], "1 contexts, expected at least two"),
        ([(Context({RISE: 0.0}), hot)] * 2, "stated twice"),
        ([(Context({}), hot), (Context({}), hot)], "at least one"),
        (
            [(Context({RISE: 0.0}), hot), (Context({"b": 1.0}), hot)],
            r"\['temperature rise'\] and \['b'\]",
        ),
        (
            [(Context({RISE: 0.0}), hot), (Context({RISE: 1.0}), hot.on("gpu1"))],
            r"measured on \['gpu0'\] and \['gpu1'\]",
        ),
        (
            [(Context({"a": x, "b": x}), hot) for x in (0.0, 1.0, 2.0)],
            "3 contexts span no hull over 2 variables",
        ),
    ],
)
def test_bad_signatures_are_refused(points, message):
    with pytest.raises(InputError, match=message):
        characterised(points)


def test_contexts_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"unknown device 'gpu9'"):
        predict_in_context(hot, mechanisms=[THERMAL], contexts={"gpu9": NULL_CONTEXT})
    at = {"gpu0": Context({"dust": 1.0}, others_null=True)}
    with pytest.raises(InputError, match=r"no mechanism carries the variable 'dust'"):
        predict_in_context(hot, mechanisms=[THERMAL], contexts=at)
    at = {"gpu0": Context({})}
    with pytest.raises(InputError, match=r"'gpu0': variable 'temperature rise' \(K\)"):
        predict_in_context(hot, mechanisms=[THERMAL], contexts=at)
    droops = power_delivery(time_constant=1e-6)
    with pytest.raises(InputError, match=r"'e': characterised over 'temperature rise'"):
        predict_in_context(line(), mechanisms=[droops])
    with pytest.raises(InputError, match="first context has 'temperature rise' = 20"):
        predict_in_context(line(rises=(20.0, 0.0)), mechanisms=[LINEAR])
    with pytest.raises(InputError, match=r"method is 'moments'"):
        predict_in_context(hot, mechanisms=[THERMAL], method="moments")  # type: ignore[arg-type]
    random = Element("random", time=stats.gamma(100, scale=0.01), **ON)
    with pytest.raises(InputError, match="expected method 'monte-carlo'"):
        predict_in_context(random, mechanisms=[THERMAL], method="exact")


def test_effects_larger_than_what_they_act_on_are_refused():
    small = traced(
        Element("small", time=1e-3, **ON), Trace({"uses w": 1e6, "traffic": 0.0})
    )
    warm = cache(capacity=4e7, sets=["w"], time_per_byte=1e-6)
    with pytest.raises(InputError, match=r"'small', time: context makes it -0.999 s"):
        predict_in_context(small >> small, mechanisms=[warm])


def test_contexts_that_follow_from_traces_leave_laws_exact():
    law = stats.uniform(1.0, 0.5)
    reuse = traced(
        Element("reuse", time=law, dynamic_energy=400.0, **ON),
        Trace({"uses w": 8e6, "traffic": 0.0}),
    )
    warm = cache(capacity=4e7, sets=["w"], time_per_byte=1e-8, energy_per_byte=1e-5)
    found = predict_in_context(reuse >> reuse, mechanisms=[warm])
    assert found.method == "exact"
    # Cold, then warm: 0.08 s and 80 J less. The sum of two uniforms is triangular.
    q = found.time.quantile(0.125)
    assert q.lower <= 2.0 + 0.25 - 0.08 <= q.upper
    assert q.upper - q.lower < 1e-4
    assert float(found.dynamic_energy.mean()) == pytest.approx(720.0)
    assert found.context_time.mean() == pytest.approx(-0.08)
    drawn = predict_in_context(
        reuse >> reuse, mechanisms=[warm], method="monte-carlo", samples=2000
    )
    assert drawn.context_time.mean() == pytest.approx(-0.08, abs=1e-6)
    assert drawn.time.quantile(0.125).value == pytest.approx(q.value, abs=0.05)


def test_the_bound_holds_at_every_quantile():
    e = Element(
        "e", time=stats.uniform(1.0, 0.2), dynamic_energy=stats.gamma(50, scale=6.0),
        **ON,
    )  # fmt: skip
    found = predict_in_context(e**30, mechanisms=[THERMAL], samples=2000, seed=5)
    limit, later = bound(found)
    levels = np.linspace(0.02, 0.98, 25)
    off = [
        abs(found.energy.quantile(p).value - found.reduced.energy.quantile(p).value)
        for p in levels
    ]
    assert 0.0 < max(off) <= limit
    assert max(off) >= 0.2 * limit  # the bound is not idle: slack is below five
    for p in levels:
        moved = found.time.quantile(p).value - found.reduced.time.quantile(p).value
        assert abs(moved) <= later + 1e-9


@dataclass(frozen=True)
class Wear:
    """A mechanism of a user's own: contacts wear with every run, and slow it."""

    per_run: float

    @property
    def mechanism(self) -> Mechanism:
        return Mechanism(
            name="wear",
            cause="contacts wear",
            timescale="runs",
            protocol="runs before and after a new contact",
            variables=(StateVariable("wear", "1", lower=0.0),),
            run=lambda state, load: {
                "wear": state["wear"] + load.amounts.get("contacts", 0.0)
            },
            effect=lambda state, load: Effect(time_scale=self.per_run * state["wear"]),
            follows="trace",
        )


def test_a_mechanism_of_a_users_own_needs_no_operator():
    e = traced(Element("e", time=2.0, **ON), Trace({"contacts": 1.0}))
    found = predict_in_context(e**4, mechanisms=[Wear(0.05).mechanism])
    assert found.time.mean() == pytest.approx(2.0 * (4 + 0.05 * (0 + 1 + 2 + 3)))
    both = predict_in_context(e**4, mechanisms=[Wear(0.05).mechanism, LINEAR])
    assert both.time.mean() == pytest.approx(found.time.mean())
