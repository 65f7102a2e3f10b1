"""The paper's own figures, to the digits given (sections 2.4 and 6)."""

from __future__ import annotations

import pytest

from probcalc.element import Element
from probcalc.prediction import predict
from probcalc.term import MultiParallel

MILLI = 1e-3


def attention(name: str, milliseconds: float, joules: float = 0.0) -> Element:
    """Stretch of the attention layer on two A100, 120 W together."""
    return Element(
        name,
        time=milliseconds * MILLI,
        dynamic_energy=joules,
        static_power=120.0,
        device=("gpu0", "gpu1"),
    )


PREFIX = attention("prefix", 1.55)
COMPUTE = attention("compute", 2.77)
ALLREDUCE = attention("allreduce", 2.77)


def test_attention_layer_overlapped():
    found = predict(PREFIX >> (COMPUTE | ALLREDUCE))
    assert found.time.mean() == pytest.approx(4.32 * MILLI, rel=1e-12)
    assert round(found.static_energy.mean() / MILLI) == 518
    q = found.time.quantile(0.999)
    assert q.lower <= 4.32 * MILLI <= q.upper
    assert q.relative_width <= 1e-12


def test_attention_layer_serialised_by_mistake():
    right = predict(PREFIX >> (COMPUTE | ALLREDUCE)).static_energy.mean()
    wrong = predict(PREFIX >> COMPUTE >> ALLREDUCE)
    assert wrong.time.mean() == pytest.approx(7.09 * MILLI, rel=1e-12)
    assert round(wrong.static_energy.mean() / MILLI) == 851
    assert (
        round(wrong.static_energy.mean() / MILLI) - round(right / MILLI) == 333
    )  # the paper subtracts rounded figures
    assert round(100 * (wrong.static_energy.mean() / right - 1)) == 64


def test_attention_layer_adds_up_to_what_was_measured():
    dynamic = 3.32 - 120.0 * 4.32 * MILLI
    compute = attention("compute", 2.77, dynamic)
    for method in ("exact", "moments"):
        found = predict(PREFIX >> (compute | ALLREDUCE), method)
        assert found.energy.mean() == pytest.approx(3.32, rel=1e-12)
        assert found.energy.quantile(0.5).value == pytest.approx(3.32, rel=1e-9)


KAREUS = [
    # iteration s, static J, dynamic J, total J
    ("Megatron-LM", 5.60, 5372, 21374, 26745),
    ("Megatron-LM + Perseus", 5.60, 5374, 19531, 24905),
    ("Nanobatching", 5.31, 5096, 21445, 26541),
    ("Nanobatching + Perseus", 5.37, 5160, 19729, 24889),
]


@pytest.mark.parametrize(("name", "time", "static", "dynamic", "total"), KAREUS)
def test_kareus_iterations_on_sixteen_devices(name, time, static, dynamic, total):
    gpus = [f"gpu{i}" for i in range(16)]

    def iteration(seconds: float):
        return MultiParallel(
            Element(
                f"{name} on {gpu}",
                time=seconds,
                dynamic_energy=dynamic / 16,
                static_power=60.0,
                device=gpu,
            )
            for gpu in gpus
        )

    rounding = 16 * 60.0 * 0.005
    found = predict(iteration(time))
    assert found.static_energy.mean() == pytest.approx(static, abs=rounding + 0.5)
    assert found.dynamic_energy.mean() == pytest.approx(dynamic, rel=1e-12)
    assert found.energy.mean() == pytest.approx(total, abs=rounding + 0.5)
    # The unrounded time that gives the paper's static energy rounds to the paper's.
    unrounded = static / (16 * 60.0)
    assert unrounded == pytest.approx(time, abs=0.005 + 1e-9)
    assert predict(iteration(unrounded)).energy.mean() == pytest.approx(total, abs=1.5)
