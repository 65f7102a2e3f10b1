"""An energy calculus: whole distributions of energy and time through plans.

>>> from probcalc import Element, predict
>>> rms = Element("rms", time=1.5, dynamic_energy=2.0, static_power=60, device="gpu0")
>>> predict(rms >> rms).energy.mean()
184.0

Names are imported from their modules when they are first asked for, so that
``import probcalc`` and ``probcalc --help`` take no time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from probcalc._version import __version__

if TYPE_CHECKING:
    from probcalc.composed import (
        Composed,
        Variable,
        expected_shortfall,
        maximum,
        minimum,
        mixture,
        probability_above,
        product,
        quantile,
        repeat,
        scale,
        shift,
        sum_of,
    )
    from probcalc.distribution import (
        Bounds,
        Constant,
        Distribution,
        Empirical,
        Probability,
        Quantile,
        as_law,
    )
    from probcalc.draws import DrawFactor
    from probcalc.element import Element, idle, transition
    from probcalc.errors import (
        CompositionError,
        InputError,
        PlanError,
        ProbcalcError,
        ToleranceError,
        UnitError,
    )
    from probcalc.joint import (
        JointAffine,
        JointIndependent,
        JointRuns,
        joint_maximum,
        joint_repeat,
        joint_sum,
        weighted,
    )
    from probcalc.lattice import Lattice
    from probcalc.montecarlo import Simulation, simulate
    from probcalc.plan import Edge, Plan, PlanNode
    from probcalc.planfile import PlanFile, read_plan
    from probcalc.prediction import Prediction, predict
    from probcalc.shared import Shared
    from probcalc.term import Term

_HOME = {
    "composed": (
        "Composed",
        "Variable",
        "expected_shortfall",
        "maximum",
        "minimum",
        "mixture",
        "probability_above",
        "product",
        "quantile",
        "repeat",
        "scale",
        "shift",
        "sum_of",
    ),
    "distribution": (
        "Bounds",
        "Constant",
        "Distribution",
        "Empirical",
        "Probability",
        "Quantile",
        "as_law",
    ),
    "draws": ("DrawFactor",),
    "element": ("Element", "idle", "transition"),
    "errors": (
        "CompositionError",
        "InputError",
        "PlanError",
        "ProbcalcError",
        "ToleranceError",
        "UnitError",
    ),
    "joint": (
        "JointAffine",
        "JointIndependent",
        "JointRuns",
        "joint_maximum",
        "joint_repeat",
        "joint_sum",
        "weighted",
    ),
    "lattice": ("Lattice",),
    "montecarlo": ("Simulation", "simulate"),
    "plan": ("Edge", "Plan", "PlanNode"),
    "planfile": ("PlanFile", "read_plan"),
    "prediction": ("Prediction", "predict"),
    "shared": ("Shared",),
    "term": ("Term",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Bounds",
    "Composed",
    "CompositionError",
    "Constant",
    "Distribution",
    "DrawFactor",
    "Edge",
    "Element",
    "Empirical",
    "InputError",
    "JointAffine",
    "JointIndependent",
    "JointRuns",
    "Lattice",
    "Plan",
    "PlanError",
    "PlanFile",
    "PlanNode",
    "Prediction",
    "Probability",
    "ProbcalcError",
    "Quantile",
    "Shared",
    "Simulation",
    "Term",
    "ToleranceError",
    "UnitError",
    "Variable",
    "__version__",
    "as_law",
    "expected_shortfall",
    "idle",
    "joint_maximum",
    "joint_repeat",
    "joint_sum",
    "maximum",
    "minimum",
    "mixture",
    "predict",
    "probability_above",
    "product",
    "quantile",
    "read_plan",
    "repeat",
    "scale",
    "shift",
    "simulate",
    "sum_of",
    "transition",
    "weighted",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'probcalc' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"probcalc.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
