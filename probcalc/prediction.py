"""Predictions: what a term costs, with the method and its assumptions named."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from probcalc.composed import scale
from probcalc.distribution import Distribution, Probability, Quantile
from probcalc.errors import InputError, ProbcalcError
from probcalc.exact import dynamic_energy_law, energy_law, time_law
from probcalc.moments import Gaussian, moment_laws
from probcalc.plan import Plan
from probcalc.runs import whole
from probcalc.setting import Setting, resolve
from probcalc.term import Repeat, Term

if TYPE_CHECKING:
    from probcalc.montecarlo import Simulation

__all__ = ["Method", "Prediction", "Repeated", "predict"]

Method = Literal["auto", "exact", "moments", "bounds", "monte-carlo"]
_LEVELS = (0.5, 0.9, 0.99, 0.999)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prediction:
    """Laws of time and energy of one execution of a term.

    Attributes
    ----------
    time : law
        Makespan in s.
    energy, static_energy, dynamic_energy : law
        In J. Static and dynamic energy depend on each other through time where both
        are random; `energy` is the law of their sum.
    method : str
        How the laws were worked out: ``exact``, ``moments``, ``bounds`` or
        ``monte-carlo``.
    assumptions : tuple of str
        What the prediction takes for granted, in sentences.
    term : Term or Plan
    baselines : mapping of str to float
        Static power in W that each device draws while held and idle, where known.
    grain : int
        1 for single executions, k where the laws are of means of k executions.
    simulation : Simulation or None
        Of a prediction by ``monte-carlo``.
    """

    time: Any
    energy: Any
    static_energy: Any
    dynamic_energy: Any
    method: str
    assumptions: tuple[str, ...]
    term: Term | Plan
    baselines: Mapping[str, float]
    grain: int = 1
    simulation: Simulation | None = None

    def budget(self, limit: float, *, rtol: float = 1e-3) -> Probability:
        """P(E > limit), limit in J, with its error.

        Raises
        ------
        InputError
            A limit that is not a finite number.
        """
        return self.energy.probability_above(_limit(limit, "J"), rtol=rtol)

    def time_budget(self, limit: float, *, rtol: float = 1e-3) -> Probability:
        """P(T > limit), limit in s, with its error."""
        return self.time.probability_above(_limit(limit, "s"), rtol=rtol)

    @property
    def label(self) -> str:
        """Name of the plan, or the term's expression."""
        return self.term.name if isinstance(self.term, Plan) else self.term.label

    @property
    def static_share(self) -> float:
        """Mean static energy over mean energy; 0 where no energy is spent."""
        total = float(self.energy.mean())
        return float(self.static_energy.mean()) / total if total else 0.0

    @property
    def dynamic_share(self) -> float:
        """Mean dynamic energy over mean energy; 0 where no energy is spent."""
        total = float(self.energy.mean())
        return float(self.dynamic_energy.mean()) / total if total else 0.0

    def over(self, n: int) -> Repeated:
        """Total and mean of n executions, one after the other.

        Run-to-run noise averages out, shared factors do not (section 4).

        Raises
        ------
        InputError
            Unless n is a whole number of at least 1, and a multiple of the grain; a
            prediction of a plan.
        """
        count = whole(n, "over: executions")
        if isinstance(self.term, Plan):
            raise InputError(
                f"over: for terms alone; lay plan {self.term.name!r} out {count} times "
                "one after the other instead"
            )
        if count % self.grain:
            raise InputError(
                f"over: {count} executions, but the laws are of means of {self.grain}: "
                "expected a multiple of that"
            )
        # k executions together are k times their mean, a fresh draw each time.
        groups = count // self.grain
        total = _predicted(Repeat(self.term, groups), self.method, self.baselines)
        if self.grain > 1:
            total = _times(total, float(self.grain))
        return Repeated(count, total, _times(total, 1.0 / count))

    def _repr_html_(self) -> str:
        """Show mean and quantiles in a notebook."""
        from probcalc.notebook import prediction_table

        return prediction_table(self)

    def to_dict(self, levels: Sequence[float] = _LEVELS) -> dict[str, Any]:
        """Return everything as numbers and texts, for JSON.

        Parameters
        ----------
        levels : sequence of float
            Levels p of the quantiles.
        """
        found: dict[str, Any] = {
            "term": self.label,
            "method": self.method,
            "assumptions": list(self.assumptions),
            "baselines": dict(self.baselines),
            "grain": self.grain,
        }
        for name, unit in _FIELDS:
            law = getattr(self, name)
            found[name] = {
                "unit": unit,
                "mean": float(law.mean()),
                "sd": math.sqrt(max(float(law.variance()), 0.0)),
                "quantiles": [_point(law.quantile(p)) for p in levels],
            }
        found["static_energy"]["share"] = self.static_share
        found["dynamic_energy"]["share"] = self.dynamic_share
        return found

    def __repr__(self) -> str:
        """Medians of time and energy with their brackets, and the method."""
        time, energy = _shown(self.time, "s"), _shown(self.energy, "J")
        grain = f", means of {self.grain}" if self.grain > 1 else ""
        return (
            f"<Prediction of {self.label!r}: median energy {energy}, "
            f"median time {time}, {self.method}{grain}>"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """Predictions for n executions of a term, one after the other.

    Attributes
    ----------
    n : int
    total, mean : Prediction
        Of the sums over all executions, and of the averages per execution.
    """

    n: int
    total: Prediction
    mean: Prediction


_FIELDS = (
    ("time", "s"),
    ("energy", "J"),
    ("static_energy", "J"),
    ("dynamic_energy", "J"),
)


def predict(
    term: Term | Plan,
    method: Method = "auto",
    *,
    baselines: Mapping[str, float] | None = None,
    **options: Any,
) -> Prediction:
    """Predict time and energy of a term or a plan; independent unless they share.

    Parameters
    ----------
    term : Term or Plan
        An element, a composition, or a scheduled plan.
    method : {"auto", "exact", "moments", "bounds", "monte-carlo"}
        ``exact``: whole laws, nothing approximated; their numbers are certified
        brackets. ``moments``: means and variances by the paper's formulas, a normal
        law in place of the true one, all of kind ``estimate``. ``bounds``: certified
        brackets between a smaller and a larger law. ``monte-carlo``: simulated
        samples, confidence intervals. ``auto`` is ``exact`` for terms and for
        series-parallel plans within reach, else ``monte-carlo``.
    baselines : mapping of str to float, optional
        What a device draws in W while held and idle. Without it the static power on
        which all elements on the device agree; it must be stated where they do not
        agree and the device can be idle. A plan states its own.
    **options
        Of `probcalc.montecarlo.simulate`, for ``monte-carlo``: samples, rtol, seed,
        level, devices, executor, ...

    Raises
    ------
    InputError
        Not a term, an unknown method, a baseline that is no power.
    CompositionError
        A baseline that is needed and not known; shared factors or grains that do not
        compose.

    Examples
    --------
    The attention layer of section 2.4, with compute and communication overlapped:

    >>> from probcalc.element import Element
    >>> on = {"device": ("gpu0", "gpu1"), "static_power": 120.0}
    >>> prefix = Element("prefix", time=1.55e-3, **on)
    >>> compute = Element("compute", time=2.77e-3, **on)
    >>> allreduce = Element("allreduce", time=2.77e-3, **on)
    >>> predict(prefix >> (compute | allreduce)).static_energy.mean()
    0.5184
    """
    if method not in get_args(Method):
        raise InputError(
            f"predict: unknown method {method!r}, expected one of "
            f"{', '.join(map(repr, get_args(Method)))}"
        )
    if method in ("bounds", "monte-carlo") and isinstance(term, Term):
        term = Plan.from_term(term, baselines=baselines)
        baselines = None
    if not isinstance(term, Plan):
        if options:
            raise InputError(
                f"predict: {', '.join(sorted(options))} given, expected only with "
                "method 'monte-carlo'"
            )
        return _predicted(term, method, baselines)
    if baselines is not None:
        raise InputError(
            f"predict: baselines given for plan {term.name!r}, which states its own"
        )
    from probcalc.planned import predicted

    found = predicted(term, method, options)
    return Prediction(
        *found.laws,
        method=found.method,
        assumptions=found.assumptions,
        term=term,
        baselines=term.baselines,
        simulation=found.simulation,
    )


def _predicted(
    term: Term, method: str, baselines: Mapping[str, float] | None
) -> Prediction:
    setting = resolve(term, baselines)
    if method == "moments":
        laws = moment_laws(setting)
    else:
        method = "exact"
        laws = (
            time_law(setting),
            energy_law(setting),
            energy_law(setting, dynamic=False),
            dynamic_energy_law(setting),
        )
    return Prediction(
        *laws,
        method=method,
        assumptions=_assumptions(setting, method),
        term=term,
        baselines=setting.account.baselines,
        grain=setting.grain,
    )


def _times(prediction: Prediction, factor: float) -> Prediction:
    """Return the laws of a prediction times a number."""
    laws = [_scaled(getattr(prediction, name), factor) for name, _ in _FIELDS]
    return Prediction(
        *laws,
        method=prediction.method,
        assumptions=prediction.assumptions,
        term=prediction.term,
        baselines=prediction.baselines,
        grain=prediction.grain,
    )


def _scaled(law: Distribution, factor: float) -> Any:
    if isinstance(law, Gaussian):
        return Gaussian(factor * law.average, factor * factor * law.spread)
    return scale(law, factor)


def _assumptions(setting: Setting, method: str) -> tuple[str, ...]:
    found = ["executions are independent of each other, within and between elements"]
    paired = [e.name for e in setting.elements if e.coupled]
    if paired:
        found.append(
            f"time and energy depend on each other as measured: {_few(paired)}"
        )
    if any(not e.coupled for e in setting.elements):
        found[0] += ", and so are an element's time and dynamic energy unless measured"
    for name, factor in sorted(setting.account.shared.items()):
        users = [e.name for e in setting.elements if factor.name in _named(e)]
        found.append(f"{name} {factor.sentence} of {_few(users)}, one draw for all")
    held = _few([f"{d} {watts:g} W" for d, watts in setting.account.baselines.items()])
    if held:
        found.append(f"devices are held to the end at their static power: {held}")
    if setting.grain > 1:
        found.append(f"laws are of means of {setting.grain} executions, not of single")
    conflicts = [e.name for e in setting.elements if e.calibration_conflict]
    if conflicts:
        found.append(
            f"runs with negative dynamic energy are kept as measured: {_few(conflicts)}"
        )
    if method == "moments":
        found.append("laws are replaced by normal ones of the same mean and variance")
    return tuple(found)


def _named(element: Any) -> set[str]:
    return {factor.name for factor in element.shared}


def _few(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    more = f" and {len(distinct) - 4} more" if len(distinct) > 4 else ""
    return ", ".join(distinct[:4]) + more


def _limit(limit: float, unit: str) -> float:
    try:
        value = math.nan if isinstance(limit, bool | str) else float(limit)
    except (TypeError, ValueError):
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"budget: limit is {limit!r}, expected a number of {unit}")
    return value


def _point(q: Quantile) -> dict[str, Any]:
    return {
        "p": q.p,
        "value": q.value,
        "lower": q.lower,
        "upper": q.upper,
        "kind": q.kind,
    }


def _shown(law: Any, unit: str) -> str:
    """Median with its bracket, in a unit that suits its size."""
    try:
        q = law.quantile(0.5)
    except ProbcalcError:
        return f"of mean {_sized(float(law.mean()), unit)}"
    if q.lower == q.upper:
        return _sized(q.value, unit)
    factor = _prefix(q.value)[0]
    low, high = (f"{bound / factor:.6g}" for bound in (q.lower, q.upper))
    return f"{_sized(q.value, unit)} [{low}, {high}]"


def _sized(value: float, unit: str) -> str:
    factor, prefix = _prefix(value)
    return f"{value / factor:.6g} {prefix}{unit}"


def _prefix(value: float) -> tuple[float, str]:
    for factor, prefix in ((1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "u")):
        if abs(value) >= factor:
            return factor, prefix
    return (1e-9, "n") if value else (1.0, "")
