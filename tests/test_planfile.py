"""Plan files: every form of a law, device and element; typed error or a plan."""

from __future__ import annotations

import io
import math
import pathlib
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probcalc import planfile
from probcalc.distribution import Constant, Empirical
from probcalc.element import Element
from probcalc.errors import InputError, PlanError
from probcalc.planfile import PlanFile, read_plan

HEAD = """
expression = "a"
[devices.gpu0]
static_power = "60 W"
"""


def plan_of(text: str, **options: Any) -> PlanFile:
    return read_plan(io.BytesIO(text.encode()), **options)


def element_of(lines: str) -> Element:
    return plan_of(f'{HEAD}[elements.a]\ndevice = "gpu0"\n{lines}').elements["a"]


def law_of(text: str) -> Any:
    return element_of(f"time = {text}").time


def test_a_whole_plan() -> None:
    plan = plan_of(
        """
        name = "layer"
        description = "for the test"
        expression = "block ** 2"
        metadata.driver = "550"
        terms.block = "prefix >> (compute | allreduce)"
        devices.pair = { static_power = "120 W", metadata.what = "two A100" }
        [elements.prefix]
        device = "pair"
        time = "1.55 ms"
        dynamic_energy = "0.9 J"
        [elements.compute]
        device = "pair"
        time = "2.77 ms"
        dynamic_energy = 1.8
        operating_point.sm_clock = "1410 MHz"
        [elements.allreduce]
        device = "pair"
        time = "2.77 ms"
        """
    )
    assert (plan.name, plan.expression) == ("layer", "block ** 2")
    assert plan.meta == {"driver": "550", "description": "for the test"}
    assert plan.devices["pair"].static_power == 120.0
    assert plan.devices["pair"].metadata == {"what": "two A100"}
    e = plan.elements
    assert plan.term == (e["prefix"] >> (e["compute"] | e["allreduce"])) ** 2
    assert e["prefix"].time == Constant(0.00155)
    assert e["compute"].dynamic_energy == Constant(1.8)
    assert e["compute"].static_power == 120.0
    assert e["compute"].operating_point == (("sm_clock", "1410 MHz"),)
    assert e["allreduce"].dynamic_energy == Constant(0.0)


@pytest.mark.parametrize(
    ("text", "mean", "sd"),
    [
        ('{ distribution = "constant", value = "2 ms" }', 2e-3, 0.0),
        ('{ distribution = "lognormal", mean = "2 ms", cv = 0.1 }', 2e-3, 2e-4),
        ('{ distribution = "lognormal", mean = "2 ms", sd = "0.2 ms" }', 2e-3, 2e-4),
        (
            '{ distribution = "lognormal", median = "2 ms", sigma = 0.5 }',
            2e-3 * math.exp(0.125),
            2e-3 * math.exp(0.125) * math.sqrt(math.expm1(0.25)),
        ),
        ('{ distribution = "gamma", mean = "2 ms", cv = "50 %" }', 2e-3, 1e-3),
        ('{ distribution = "gamma", shape = 4, scale = "1 ms" }', 4e-3, 2e-3),
        ('{ distribution = "normal", mean = "2 ms", sd = "1 us" }', 2e-3, 1e-6),
        (
            """{ distribution = "normal", mean = "2 ms", sd = "2 ms", lower = 0,
            upper = "4 ms" }""".replace("\n", ""),
            2e-3,
            2e-3 * math.sqrt(1 - 2 * 0.24197072451914337 / 0.6826894921370859),
        ),
        (
            '{ distribution = "uniform", low = "1 ms", high = "3 ms" }',
            2e-3,
            1e-3 / math.sqrt(3),
        ),
        ('{ distribution = "exponential", mean = "2 ms" }', 2e-3, 2e-3),
        (
            '{ distribution = "exponential", mean = "2 ms", offset = "1 ms" }',
            3e-3,
            2e-3,
        ),
        (
            '{ distribution = "pareto", shape = 3, scale = "2 ms" }',
            3e-3,
            math.sqrt(3e-6),
        ),
        ('{ distribution = "pareto", shape = 1.5, scale = "2 ms" }', 6e-3, math.inf),
        (
            '{ distribution = "weibull", shape = 2, scale = "2 ms" }',
            2e-3 * math.sqrt(math.pi) / 2,
            2e-3 * math.sqrt(1 - math.pi / 4),
        ),
        (
            '{mixture = [{weight = 0.9, law = "1 ms"}, {weight = 0.1, law = 2e-3}]}',
            1.1e-3,
            3e-4,
        ),
    ],
)
def test_named_laws(text: str, mean: float, sd: float) -> None:
    law = law_of(text)
    assert law.mean() == pytest.approx(mean, rel=1e-9)
    assert math.sqrt(law.variance()) == pytest.approx(sd, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        '["1 ms", "2 ms", "1.5 ms"]',
        "[0.001, 0.002, 0.0015]",
        '{ samples = [1, 2, 1.5], unit = "ms" }',
        '{ file = "runs.csv", column = "time (ms)", unit = "ms" }',
        '{ file = "runs.parquet", column = "time (ms)", unit = "ms" }',
    ],
)
def test_measured_runs(text: str, tmp_path: pathlib.Path) -> None:
    (tmp_path / "runs.csv").write_bytes(
        b"\xef\xbb\xbfrun, time (ms)\r\n0,1\r\n1, 2\r\n\r\n2,1.5\r\n"
    )
    if "parquet" in text:
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = pyarrow.table({"time (ms)": [1.0, 2.0, 1.5]})
        parquet.write_table(table, tmp_path / "runs.parquet")
    path = tmp_path / "plan.toml"
    path.write_text(f'{HEAD}[elements.a]\ndevice = "gpu0"\ntime = {text}\n')
    law = read_plan(path).elements["a"].time
    assert isinstance(law, Empirical)
    np.testing.assert_allclose(law.samples, [1e-3, 2e-3, 1.5e-3], rtol=1e-15)


def test_pairs_of_time_and_energy_stay_pairs() -> None:
    runs = """
    time = { samples = [1.0, 2.0, 3.0], unit = "s" }
    """
    a = element_of(f'{runs}energy = ["70 J", "150 J", "200 J"]\nblocks = [1, 1, 2]')
    b = element_of(f"{runs}dynamic_energy = [10, 30, 20]\nblocks = [1, 1, 2]")
    for element in (a, b):
        assert element.runs is not None
        assert element.runs.blocks == (1, 1, 2)
        np.testing.assert_allclose(element.runs.dynamic_energy, [10, 30, 20])
        np.testing.assert_allclose(element.runs.energy, [70, 150, 200])
    apart = element_of(f"{runs}dynamic_energy = [10, 30]\npaired = false")
    assert apart.runs is None
    np.testing.assert_array_equal(apart.dynamic_energy.samples, [10, 30])  # type: ignore[attr-defined]


def test_runs_below_their_static_energy_are_kept_on_request() -> None:
    lines = "time = [1.0, 1.0]\nenergy = [50.0, 70.0]\n"
    with pytest.raises(InputError, match=r"elements\.a.*run 0 \(-10 J\)"):
        element_of(lines)
    assert element_of(lines + 'conflicts = "keep"').calibration_conflict == (0,)


def test_missing_runs_are_left_out_on_request() -> None:
    lines = "time = [1.0, nan, 1.5]\nenergy = [70.0, 80.0, 99.0]\n"
    with pytest.raises(InputError, match=r"elements\.a: .*time: sample 1 is NaN"):
        element_of(lines)
    runs = element_of(lines + 'nan = "omit"').runs
    assert runs is not None
    assert runs.time.tolist() == [1.0, 1.5]


def test_blocks_from_a_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "runs.csv").write_text("t,e,process\n1,90,x\n2,190,x\n3,290,y\n")
    path = tmp_path / "plan.toml"
    path.write_text(
        f"""{HEAD}[elements.a]
        device = "gpu0"
        time = {{ file = "runs.csv", column = "t", unit = "s" }}
        energy = {{ file = "runs.csv", column = "e", unit = "J" }}
        blocks = {{ file = "runs.csv", column = "process" }}
        """
    )
    runs = read_plan(path).elements["a"].runs
    assert runs is not None
    assert runs.blocks == ("x", "x", "y")
    assert runs.energy.tolist() == [90.0, 190.0, 290.0]
    only_time = element_of('time = [1.0, 2.0]\nblocks = ["x", "y"]').time
    assert isinstance(only_time, Empirical)
    assert only_time.blocks == ("x", "y")


def test_shared_factors() -> None:
    plan = plan_of(
        f"""{HEAD}
        [shared."gain:gpu0"]
        law = {{ distribution = "uniform", low = 0.95, high = 1.05 }}
        [shared.leak]
        law = {{ distribution = "normal", mean = "0 W", sd = "2 W" }}
        acts_on = "static_power"
        how = "shift"
        [elements.a]
        device = "gpu0"
        time = 1
        shared = ["gain:gpu0", "leak"]
        """
    )
    gain, leak = plan.elements["a"].shared
    assert (gain.name, gain.acts_on, gain.how) == ("gain:gpu0", "energy", "scale")
    assert gain.law.support() == pytest.approx((0.95, 1.05))
    assert (leak.acts_on, leak.how) == ("static_power", "shift")
    assert float(leak.law.variance()) == pytest.approx(4.0)
    assert plan.shared["leak"] is leak


def test_devices_idle_and_transition() -> None:
    plan = plan_of(
        """
        expression = "(a & b) >> gap >> both"
        devices.gpu0.static_power = "60 W"
        devices.gpu1.static_power = "80 W"
        elements.a = { device = "gpu0", time = 1, static_power = "65 W" }
        elements.b = { device = "gpu1", time = 1, operating_point = 1410 }
        elements.gap = { idle = "1 s", devices = ["gpu0", "gpu1"] }
        [elements.both]
        devices = ["gpu0", "gpu1"]
        time = 2
        static_power.gpu1 = "90 W"
        [elements.slower]
        transition = { from = 1410, to = 990 }
        device = "gpu1"
        time = "30 ms"
        dynamic_energy = "1 J"
        """
    )
    e = plan.elements
    assert e["a"].static_power == 65.0
    assert dict(e["gap"].powers) == {"gpu0": 60.0, "gpu1": 80.0}
    assert dict(e["both"].powers) == {"gpu0": 60.0, "gpu1": 90.0}
    assert e["slower"].metadata["transition"] == (1410, 990)
    assert e["slower"].dynamic_energy == Constant(1.0)
    assert str(plan.term) == "(a & b) >> gap >> both"


def test_another_expression_over_the_same_elements() -> None:
    plan = plan_of(
        f'{HEAD}[elements.a]\ndevice = "gpu0"\ntime = 1', expression="a >>\n a"
    )
    assert plan.expression == "a >> a"
    assert len(plan.term.parts) == 2


def test_a_text_stream_and_a_name_for_messages() -> None:
    with pytest.raises(PlanError, match=r"^mine: no elements"):
        read_plan(io.StringIO("expression = 'a'"), name="mine")
    with pytest.raises(PlanError, match=r"^standard input: no elements"):
        read_plan(io.StringIO("expression = 'a'"))


def test_sizes_are_capped_before_memory_is_taken(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Endless(io.RawIOBase):
        taken = 0

        def read(self, size: int = -1) -> bytes:
            assert 0 < size <= planfile.MAX_BYTES + 1
            self.taken += size
            return b"#" * size

    stream = Endless()
    with pytest.raises(PlanError, match="more than 4,194,304 bytes"):
        read_plan(stream)  # type: ignore[arg-type]
    assert stream.taken == planfile.MAX_BYTES + 1

    monkeypatch.setattr(planfile, "MAX_ENTRIES", 3)
    many = "\n".join(f'e{i} = {{ device = "gpu0", time = 1 }}' for i in range(4))
    with pytest.raises(PlanError, match=r"elements: 4 entries; at most 3 allowed"):
        plan_of(f"{HEAD}[elements]\n{many}")

    monkeypatch.setattr("probcalc.columns.MAX_ROWS", 2)
    monkeypatch.setattr("probcalc.lawspec.MAX_ROWS", 2)
    (tmp_path / "runs.csv").write_text("t\n1\n2\n3\n")
    path = tmp_path / "plan.toml"
    lines = f'{HEAD}[elements.a]\ndevice = "gpu0"\ntime = '
    path.write_text(lines + '{ file = "runs.csv", column = "t", unit = "s" }')
    with pytest.raises(PlanError, match=r"'runs\.csv' has more than 2 rows"):
        read_plan(path)
    with pytest.raises(PlanError, match="3 runs; at most 2 allowed"):
        law_of("[1, 2, 3]")
    monkeypatch.setattr("probcalc.columns.MAX_BYTES", 5)
    with pytest.raises(PlanError, match=r"'runs\.csv' has 8 bytes; at most 5 allowed"):
        read_plan(path)


def test_parquet_without_pyarrow(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "runs.parquet").write_bytes(b"PAR1")
    path = tmp_path / "plan.toml"
    path.write_text(
        f'{HEAD}[elements.a]\ndevice = "gpu0"\n'
        'time = { file = "runs.parquet", column = "t", unit = "s" }'
    )
    with pytest.raises(PlanError, match="needs pyarrow, which is not installed"):
        read_plan(path)


# --- fuzz: documents of the right shape with wrong things in them ------------------

_scalars = st.one_of(
    st.booleans(),
    st.integers(-3, 10**6),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["1 ms", "3 J", "60 W", "a", "a >> b", "gpu0", "-1 s", "0 s"]),
)
_laws = st.one_of(
    _scalars,
    st.lists(_scalars, max_size=3),
    st.dictionaries(
        st.sampled_from(
            [
                "distribution",
                "mean",
                "cv",
                "sd",
                "shape",
                "scale",
                "low",
                "high",
                "samples",
                "unit",
                "file",
                "column",
                "mixture",
                "weight",
                "law",
            ]
        ),
        st.one_of(
            _scalars,
            st.lists(_scalars, max_size=3),
            st.sampled_from(["gamma", "normal", "lognormal", "pareto", "uniform"]),
        ),
        max_size=4,
    ),
)
_element_keys = st.sampled_from(
    [
        "time",
        "energy",
        "dynamic_energy",
        "static_power",
        "blocks",
        "conflicts",
        "shared",
        "idle",
        "device",
        "devices",
        "paired",
        "nan",
        "grain",
        "workload",
        "operating_point",
        "metadata",
        "transition",
        "tine",
    ]
)
_documents = st.fixed_dictionaries(
    {},
    optional={
        "expression": st.one_of(st.just("a"), st.just("a >> b | c ** 2"), _scalars),
        "devices": st.one_of(
            st.just({"gpu0": {"static_power": "60 W"}}),
            st.dictionaries(st.text(max_size=4), _laws, max_size=2),
        ),
        "elements": st.dictionaries(
            st.sampled_from(["a", "b", "c", "no name", ""]),
            st.one_of(
                _scalars,
                st.dictionaries(_element_keys, _laws, max_size=5),
                st.builds(
                    lambda more: {"device": "gpu0", "time": "1 ms"} | more,
                    st.dictionaries(_element_keys, _laws, max_size=3),
                ),
            ),
            max_size=3,
        ),
        "terms": st.dictionaries(st.sampled_from("abt"), _scalars, max_size=2),
        "shared": st.dictionaries(
            st.sampled_from(["g", "h"]),
            st.dictionaries(
                st.sampled_from(["law", "acts_on", "how"]), _laws, max_size=3
            ),
            max_size=2,
        ),
        "metadata": _laws,
        "name": _scalars,
        "extra": _scalars,
    },
)


@given(_documents)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_any_document_is_a_plan_or_a_typed_error(document: dict[str, Any]) -> None:
    message = "x: "
    try:
        assert isinstance(
            planfile._plan(document, "x", pathlib.Path("no such folder"), None),
            PlanFile,
        )
    except InputError as error:
        message = str(error)
    assert message.startswith("x: ")
    assert "\n" not in message


@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)))
def test_any_bytes_are_a_plan_or_a_typed_error(content: bytes) -> None:
    with pytest.raises(PlanError, match=r"^standard input: "):
        read_plan(io.BytesIO(content))


_PLAN = (
    pathlib.Path(planfile.__file__).parent / "examples" / "attention.toml"
).read_text()


@given(
    st.integers(0, len(_PLAN) - 1), st.sampled_from("[]{}=\"'\n#.,0-9eJsW>&|*() \x00é")
)
@settings(max_examples=200)
def test_a_plan_with_one_character_changed(at: int, character: str) -> None:
    text = _PLAN[:at] + character + _PLAN[at + 1 :]
    message = "standard input: "
    try:
        assert plan_of(text).elements
    except InputError as error:
        message = str(error)
    assert message.startswith("standard input: ")
