"""Draw groups from records: components, steadiness, the choice on held-out steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probcalc.errors import InputError
from probcalc.grouping import CANDIDATES, fit_groups
from probcalc.groups import Record, steady, variance_shares
from probcalc.plan import Plan
from probcalc.validation.stragglers import replicas


def nested(steps: int, seed: int, spreads: tuple[float, ...]) -> Record:
    """Log-normal rows with known components: step, rank, microbatch, operation."""
    rng = np.random.default_rng(seed)
    shape = (steps, 4, 8, 4)
    log = np.zeros(shape)
    for k, spread in enumerate(spreads):
        log = log + spread * rng.normal(size=shape[: k + 1] + (1,) * (3 - k))
    at = np.indices(shape).reshape(4, -1).tolist()
    names = ("step", "rank", "microbatch", "kind")
    return Record(np.exp(log).ravel(), dict(zip(names, at, strict=True)))


def test_components_of_variance_are_found() -> None:
    spreads = (0.4, 0.3, 0.2, 0.2)
    found = variance_shares(nested(200, 1, spreads), pool=("kind",))
    total = sum(s * s for s in spreads)
    assert [s.level for s in found][-1] == "operation"
    for share, spread in zip(found, spreads, strict=True):
        assert share.variance == pytest.approx(spread**2, rel=0.4)
        assert share.lower <= spread**2 / total <= share.upper


def test_intervals_of_shares_cover() -> None:
    spreads = (0.3, 0.2, 0.2, 0.3)
    total = sum(s * s for s in spreads)
    missed = 0
    for seed in range(60):
        found = variance_shares(nested(40, seed, spreads), pool=("kind",))
        missed += not found[0].lower <= spreads[0] ** 2 / total <= found[0].upper
    assert missed <= 12  # 5 % asked; a bootstrap over 40 steps misses somewhat more


def test_groups_of_unequal_size_are_refused() -> None:
    record = nested(4, 0, (0.1, 0.1, 0.1, 0.1))
    labels = {name: list(column)[:-1] for name, column in record.labels.items()}
    with pytest.raises(InputError, match="expected equally many"):
        variance_shares(Record(record.times[:-1], labels), pool=("kind",))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Record([1.0, -2.0], {"step": [0, 1]}), "time of row 1 is -2"),  # type: ignore[arg-type]
        (lambda: Record([1.0, math.nan], {"step": [0, 1]}), "time of row 1 is nan"),  # type: ignore[arg-type]
        (lambda: Record([1.0], {"rank": [0]}), "no label 'step'"),  # type: ignore[arg-type]
        (lambda: Record([1.0], {"step": [0, 1]}), "2 labels 'step' for 1 rows"),  # type: ignore[arg-type]
        (lambda: steady(np.ones(5)), "expected at least 8"),
        (
            lambda: variance_shares(nested(4, 0, (0.1,) * 4), ("rank",)),
            "expected 'step' first",
        ),
    ],
)
def test_bad_records_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        build()


def test_steady_records_pass_as_often_as_they_should() -> None:
    rng = np.random.default_rng(0)
    calm = [steady(rng.normal(10.0, 1.0, 40))[0] for _ in range(300)]
    assert sum(calm) >= 295
    wild = np.concatenate([rng.normal(10.0, 1.0, 20), rng.normal(10.0, 6.0, 20)])
    assert not steady(wild)[0]
    assert not steady(np.concatenate([np.full(20, 1.0), np.full(20, 2.0)]))[0]


def small_job(seed: int, steps: int, together: bool) -> tuple[Plan, Record, dict]:
    """A job of 4 ranks whose microbatches vary together, or whose operations do not."""
    rng = np.random.default_rng(seed)
    plan = replicas(4, 2, 4)
    labelled: Any = plan.labels
    size = 0.4
    rows: list[float] = []
    labels: dict[str, list[Any]] = {k: [] for k in ("step", *plan.labels)}
    observed = {}
    from probcalc.kernels import graph

    for step in range(steps):
        common = rng.normal(size=(4, 4))
        durations = np.empty(len(plan))
        for i in range(len(plan)):
            rank, m = labelled["rank"][i], labelled["microbatch"][i]
            draw = common[rank, m] if together else rng.normal()
            mean = 1.0 if plan.labels["kind"][i] == "forward" else 2.0
            durations[i] = mean * math.exp(size * draw)
            labels["step"].append(step)
            for name in plan.labels:
                labels[name].append(plan.labels[name][i])
        rows.extend(durations.tolist())
        longest = graph.longest(
            len(plan), plan.sources, plan.targets, plan.lags, durations, plan.releases
        )
        observed[step] = longest + 0.5
    return plan, Record(np.array(rows), labels), observed


@pytest.mark.parametrize("together", [True, False])
def test_the_grouping_that_made_the_steps_is_chosen(together: bool) -> None:
    plan, record, observed = small_job(3, 60, together)
    fit = fit_groups(plan, record, observed, samples=2048)
    assert fit.verdict == "chosen"
    expected = "microbatch rows, own rank" if together else "independent"
    assert fit.chosen is not None
    assert fit.chosen.startswith(expected)
    best = [s for s in fit.scores if s.grouping == fit.chosen]
    assert all(abs(s.mean_error) < 0.05 for s in best)
    assert len(fit.scores) == 2 * len(CANDIDATES)


def test_few_steps_choose_nothing() -> None:
    plan, record, observed = small_job(1, 12, True)
    fit = fit_groups(plan, record, observed, samples=512)
    assert fit.verdict == "too short"
    assert fit.chosen is None
    assert "6 held-out steps" in fit.reason


def test_missing_steps_and_rows_are_named() -> None:
    plan, record, observed = small_job(1, 10, True)
    del observed[4]
    with pytest.raises(InputError, match="no measured time of step 4"):
        fit_groups(plan, record, observed)
    labels = {k: list(v)[:-1] for k, v in record.labels.items()}
    with pytest.raises(InputError, match="no row for node"):
        fit_groups(plan, Record(record.times[:-1], labels), {**observed, 4: 1.0})
