"""Simulations on a Dask cluster: the example of the documentation, the same numbers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from scipy import stats

from probcalc.element import Element
from probcalc.montecarlo import simulate
from probcalc.plan import Plan
from probcalc.schedules import one_f_one_b

distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with warnings.catch_warnings():  # of the cluster's own start and end
        warnings.simplefilter("ignore")
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=None
            ) as cluster,
            distributed.Client(cluster) as client,
        ):
            yield client


def pipeline() -> Plan:
    forward = Element(
        "forward",
        time=stats.gamma(20, scale=5e-4),
        dynamic_energy=2.0,
        static_power=60.0,
        device="gpu0",
    )
    backward = Element(
        "backward", time=0.02, dynamic_energy=4.0, static_power=60.0, device="gpu0"
    )
    return one_f_one_b(2, 4, forward=forward, backward=backward)


def test_two_workers_give_the_numbers_of_one_process(client: Any) -> None:
    workers = set(client.run(os.getpid).values())
    assert len(workers - {os.getpid()}) == 2
    alone = simulate(pipeline(), samples=4096, seed=5, chunk=4096)
    executor = client.get_executor()
    spread = simulate(pipeline(), samples=4096, seed=5, chunk=512, executor=executor)
    assert spread.digest == alone.digest
    assert spread.energy.quantile(0.99) == alone.energy.quantile(0.99)
