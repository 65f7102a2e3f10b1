"""Copies and pickles of laws, elements, terms and predictions answer as these do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, cast

import numpy as np
import pytest
from scipy import stats

from probcalc.composed import (
    Variable,
    maximum,
    minimum,
    mixture,
    product,
    repeat,
    scale,
    sum_of,
)
from probcalc.distribution import Constant, Empirical, as_law
from probcalc.element import Element
from probcalc.errors import InputError
from probcalc.families import family_of
from probcalc.joint import JointAffine, JointRuns, joint_maximum, weighted
from probcalc.lattice import Lattice
from probcalc.plan import Plan, PlanNode
from probcalc.prediction import predict
from probcalc.readonly import ReadOnly
from probcalc.shared import Shared
from probcalc.term import Term

Copy = Callable[[Any], Any]


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


both = pytest.mark.parametrize("copied", [copy.deepcopy, pickled])

MEASURED = Element.from_runs(
    "measured",
    time=[1.0, 2.0, 3.0],
    energy=[100.0, 150.0, 300.0],
    static_power=40.0,
    device="gpu0",
    blocks=["a", "b", "a"],
)
MODELLED = Element(
    "modelled",
    time=stats.gamma(3, scale=0.1),
    dynamic_energy=stats.lognorm(0.3),
    static_power={"gpu1": 60.0, "gpu2": 50.0},
    devices=("gpu1", "gpu2"),
    workload={"batch": [1, 2]},
    operating_point="fast",
    metadata={"driver": ["550", "560"]},
)
GAINED = Element(
    "gained",
    time=Empirical([1.0, 1.5]),
    dynamic_energy=2.0,
    static_power=30.0,
    device="gpu3",
    shared=Shared("gain", stats.uniform(0.9, 0.2)),
)
OTHER = Element(
    "other",
    time=1.5,
    dynamic_energy=stats.norm(9.0, 1.0),
    static_power=30.0,
    device="gpu3",
)

LAWS: dict[str, Any] = {
    "constant": Constant(3.0),
    "empirical": Empirical([3.0, 1.0, 1.0, 7.0], blocks=[1, 1, 2, 2]),
    "weighted empirical": Empirical([1.0, 2.0, 3.0], weights=[0.3, 0.5, 0.1]),
    "frozen": as_law(stats.lognorm(0.5, scale=2.0)),
    "lattice": Lattice(1, 0.5, np.array([0.25, 0.75])),
}
COMPOSED: dict[str, Any] = {
    "sum": sum_of(stats.gamma(2.0), Empirical([1.0, 2.0]), 1.0),
    "repeat": repeat(stats.lognorm(0.5), 8),
    "extremes": maximum(minimum(stats.expon(), 2.0), stats.gamma(3.0)),
    "mixture": mixture([0.25, 0.75], [stats.norm(), scale(stats.expon(), 3.0)]),
    "shared draw": sum_of(
        Variable("x", Empirical([1.0, 2.0])),
        maximum(Variable("x", Empirical([1.0, 2.0])), stats.gamma(2.0)),
    ),
    "product": product(Empirical([1.0, 2.0]), sum_of(stats.gamma(2.0), 1.0)),
    "joint": weighted(
        joint_maximum(
            JointRuns([1.0, 2.0], [3.0, 4.0], [0.25, 0.75]),
            JointAffine(stats.gamma(3.0), -2.0, 1.0),
        ),
        3.0,
    ),
}
TERMS: dict[str, Term] = {
    "measured": MEASURED,
    "modelled": MODELLED,
    "gained": GAINED,
    "sequential": MODELLED >> OTHER >> MODELLED,
    "parallel": MEASURED | MEASURED,
    "devices": MEASURED & OTHER,
    "repeated": (MODELLED >> OTHER) ** 5,
}


@both
@pytest.mark.parametrize("name", LAWS)
def test_given_laws(name: str, copied: Copy) -> None:
    law = LAWS[name]
    other = copied(law)
    assert type(other) is type(law)
    for sf in (0.9, 0.5, 0.01):
        assert other.iccdf(sf) == law.iccdf(sf)
        assert other.icdf(sf) == law.icdf(sf)


@both
@pytest.mark.parametrize("name", COMPOSED)
def test_composed_laws(name: str, copied: Copy) -> None:
    law = COMPOSED[name]
    for other in (copied(law), copied(sum_of(law, 0.0))):
        assert other.quantile(sf=0.01) == law.quantile(sf=0.01)
    # Once more, with what the law found before.
    assert copied(law).quantile(sf=0.3) == law.quantile(sf=0.3)


@both
@pytest.mark.parametrize(
    "law",
    [
        stats.gamma(2.5, loc=1.0, scale=3.0),
        stats.truncnorm(-3.0, 1.0),
        stats.genpareto(-0.25, scale=2.0),
        2.0 - 3.0 * stats.Normal(mu=1.0, sigma=2.0),
    ],
)
def test_families(law: Any, copied: Copy) -> None:
    family = family_of(law)
    assert family is not None
    other = copied(family)
    assert other == family
    assert hash(other) == hash(family)
    x = np.linspace(-4.0, 9.0, 27)
    np.testing.assert_array_equal(other.sf(x), family.sf(x))
    np.testing.assert_array_equal(other.partial_above(x), family.partial_above(x))


@both
def test_fields_of_elements(copied: Copy) -> None:
    for element in (MEASURED, MODELLED, OTHER.on("gpu7")):
        other = copied(element)
        assert type(other) is Element
        assert other != element  # two elements are two, whatever they are called
        assert repr(other) == repr(element)
        assert other.powers == element.powers
        assert list(other.powers) == list(element.powers)
        assert other.metadata == element.metadata
        for name in ("devices", "workload", "operating_point", "points", "grain"):
            assert getattr(other, name) == getattr(element, name), name
        with pytest.raises(TypeError):
            cast(Any, other.powers)["gpu0"] = 1.0
        with pytest.raises(AttributeError):
            cast(Any, other).name = "x"
    runs = copied(MEASURED).runs
    np.testing.assert_array_equal(runs.energy, [100.0, 150.0, 300.0])
    assert runs.blocks == ("a", "b", "a")
    # A deep copy shares nothing that can be changed.
    assert copied(MODELLED).metadata["driver"] is not MODELLED.metadata["driver"]


@both
@pytest.mark.parametrize(
    ("name", "method"),
    # Moments also where exact quantiles take seconds.
    [(n, "exact") for n in ("measured", "gained", "devices")]
    + [(n, "moments") for n in TERMS],
)
def test_terms_and_predictions(name: str, method: Any, copied: Copy) -> None:
    term = TERMS[name]
    found = predict(term, method)
    for other in (predict(copied(term), method), copied(found)):
        assert cast(Term, other.term).label == term.label
        assert other.assumptions == found.assumptions
        assert other.baselines == found.baselines
        for law in ("time", "energy", "static_energy", "dynamic_energy"):
            mine, its = getattr(found, law), getattr(other, law)
            assert its.quantile(0.99) == mine.quantile(0.99), law
    assert copied(found.over(2)).mean.energy.mean() == found.over(2).mean.energy.mean()


@both
def test_what_was_one_stays_one(copied: Copy) -> None:
    first, second, third = copied(MODELLED >> OTHER >> MODELLED).parts
    assert first is third
    assert first is not second
    one, two = copied((GAINED, GAINED.on("gpu0")))
    assert one.shared[0] is two.shared[0]


@both
def test_arrays_stay_read_only(copied: Copy) -> None:
    law = copied(LAWS["weighted empirical"])
    for array in (law.samples, law.weights, law.atoms, law.mass, law.below):
        assert not array.flags.writeable
    runs = copied(JointRuns([1.0, 2.0], [3.0, 4.0]))
    assert not runs.time.flags.writeable
    assert not runs.x.flags.writeable
    assert copied(LAWS["empirical"]) == LAWS["empirical"]
    lattice = copied(Lattice(0, 1.0, [0.5, 0.5]))
    assert not lattice.mass.flags.writeable
    kept = copied(MEASURED).runs
    assert not kept.energy.flags.writeable
    plan = copied(Plan.of([PlanNode("a", MEASURED), PlanNode("b", MEASURED, ["a"])]))
    assert not plan.sources.flags.writeable


@both
def test_plans(copied: Copy) -> None:
    plan = Plan.of(
        [PlanNode("a", MEASURED), PlanNode("b", MODELLED, ["a"], labels={"step": 1})],
        baselines={"gpu0": 40.0, "gpu1": 60.0, "gpu2": 50.0},
    )
    again = copied(plan)
    assert again.names == plan.names
    assert again.labels == plan.labels
    assert again.baselines == plan.baselines
    for method in ("exact", "monte-carlo"):
        first, second = predict(plan, method), predict(again, method)
        assert first.time.quantile(0.9) == second.time.quantile(0.9)
        assert first.energy.quantile(0.9) == second.energy.quantile(0.9)


@both
def test_read_only_mapping(copied: Copy) -> None:
    given = ReadOnly({"b": [1], "a": [2]})
    other = copied(given)
    assert other == given == {"b": [1], "a": [2]}
    assert list(other) == ["b", "a"]
    assert len(other) == 2
    assert "c" not in other
    with pytest.raises(KeyError):
        other["c"]
    with pytest.raises(TypeError):
        other["a"] = [3]
    assert other["a"] is not given["a"]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as found:
        yield found


def test_through_another_process(pool: ProcessPoolExecutor) -> None:
    found = pool.submit(copy.deepcopy, TERMS["repeated"]).result()
    wanted = predict(TERMS["repeated"], "moments").energy.quantile(0.9)
    assert predict(found, "moments").energy.quantile(0.9) == wanted
    found = pool.submit(predict, MODELLED).result()
    assert found.time.mean() == predict(MODELLED).time.mean()


@both
def test_normal_that_scipy_spoils_is_refused(copied: Copy) -> None:
    normal = stats.Normal(mu=9.0, sigma=2.0)
    for law in (normal, 3.0 * normal, stats.truncate(normal, lb=0.0)):
        spoilt = copied(sum_of(law, stats.gamma(2.0)))
        with pytest.raises(InputError, match="standard normal law of a copied"):
            spoilt.quantile(sf=0.1)
    fine = sum_of(stats.Normal(), stats.gamma(2.0))
    assert copied(fine).quantile(sf=0.1) == fine.quantile(sf=0.1)
