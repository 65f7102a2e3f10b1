"""Laws as a plan file writes them: quantities, measured runs, named distributions."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probcalc.columns import MAX_ROWS, read_numbers
from probcalc.distribution import Constant, Distribution, Empirical, as_law
from probcalc.errors import PlanError, ProbcalcError
from probcalc.expression import nearest
from probcalc.units import quantity, shown, unit_factor

__all__ = [
    "Context",
    "check_keys",
    "has_samples",
    "located",
    "read_law",
    "read_samples",
    "text",
]

_MAX_NESTED = 8
"""Mixtures inside each other."""
_MAX_PARTS = 1000
"""Parts of one mixture."""
# P(X < 0) of a normal law below which cutting it at 0 is within double rounding:
# mean / sd = 8.3 gives 5e-17.
_SAFE_NORMAL = 8.3
_MOST = {"cv": 1e3, "sigma": 10.0}


@dataclass(frozen=True, slots=True)
class Context:
    """Where a law stands.

    Attributes
    ----------
    where : str
        File and key, for messages.
    dimension : str
        Dimension of its values, a key of `probcalc.units.DIMENSIONS`.
    folder : Path
        What file names are relative to.
    signed : bool
        Whether values below zero make sense, as in a correction.
    """

    where: str
    dimension: str
    folder: pathlib.Path
    signed: bool = False

    def at(self, key: str) -> Context:
        """Context of an entry of this one."""
        return dataclasses.replace(self, where=f"{self.where}.{key}")

    def quantity(self, value: Any) -> float:
        """Read a quantity of this dimension in SI units."""
        return quantity(value, dimension=self.dimension, where=self.where)


@contextlib.contextmanager
def located(where: str) -> Iterator[None]:
    """Put file and key before the message of any error of the package."""
    try:
        yield
    except ProbcalcError as error:
        if str(error).startswith(where.partition(":")[0] + ":"):
            raise
        raise type(error)(f"{where}: {error}") from error


def check_keys(table: Any, known: Sequence[str], where: str) -> Mapping[str, Any]:
    """Return a table whose keys are all known; each other one is an error."""
    if not isinstance(table, Mapping):
        raise PlanError(f"{where}: {shown(table)} found; expected a table")
    for key in table:
        if key not in known:
            raise PlanError(
                f"{where}: unknown key {key[:60]!r}{nearest(key, tuple(known))}"
            )
    return table


def text(value: Any, where: str) -> str:
    """Return a value that is a text."""
    if not isinstance(value, str):
        raise PlanError(f"{where}: {shown(value)} found; expected a text")
    return value


def has_samples(spec: Any) -> bool:
    """Whether a law is given as measured runs."""
    return isinstance(spec, list) or (
        isinstance(spec, Mapping) and ("samples" in spec or "file" in spec)
    )


def read_samples(spec: Any, context: Context) -> list[float]:
    """Read measured runs, in SI units and in the order measured.

    Parameters
    ----------
    spec : list or table
        A list of quantities; or ``{ samples = [...], unit = "ms" }``; or
        ``{ file = "runs.csv", column = "time", unit = "ms" }``.
    context : Context
        Where it stands.
    """
    where = context.where
    if isinstance(spec, list):
        _check_count(spec, where)
        # A missing run stays NaN: whether it is an error is for the law to say.
        return [
            run
            if isinstance(run, float) and math.isnan(run)
            else quantity(run, dimension=context.dimension, where=f"{where}[{i}]")
            for i, run in enumerate(spec)
        ]
    if "samples" in spec:
        table = check_keys(spec, ("samples", "unit"), where)
        runs = table["samples"]
        if not isinstance(runs, list):
            raise PlanError(f"{where}.samples: {shown(runs)} found; expected a list")
        _check_count(runs, f"{where}.samples")
        for index, run in enumerate(runs):
            if isinstance(run, bool) or not isinstance(run, int | float):
                raise PlanError(
                    f"{where}.samples[{index}]: {shown(run)} is no number"
                    " (the unit stands in 'unit')"
                )
        # A whole number above the range of doubles is refused like any infinity.
        values = [float(run) if abs(run) < 1e308 else math.inf for run in runs]
    else:
        table = check_keys(spec, ("file", "column", "unit"), where)
        path = context.folder / text(table["file"], f"{where}.file")
        if "column" not in table:
            raise PlanError(f"{where}: file without 'column', the name of its column")
        column = text(table["column"], f"{where}.column")
        values = read_numbers(path, column, where=where)
        _check_count(values, where)
    factor = 1.0
    if "unit" in table:
        unit = text(table["unit"], f"{where}.unit")
        factor = unit_factor(unit, dimension=context.dimension, where=f"{where}.unit")
    elif context.dimension != "number":
        raise PlanError(f"{where}: measured runs without 'unit'")
    return [run * factor for run in values]


def _check_count(runs: Sequence[Any], where: str) -> None:
    if not runs:
        raise PlanError(f"{where}: no runs; expected at least one")
    if len(runs) > MAX_ROWS:
        raise PlanError(f"{where}: {len(runs):,} runs; at most {MAX_ROWS:,} allowed")


def read_law(spec: Any, context: Context, *, depth: int = 0) -> Distribution:
    """Read a law in any of the forms that a plan file allows.

    Parameters
    ----------
    spec : number, text, list or table
        A quantity (constant law), measured runs (see `read_samples`), a named
        distribution ``{ distribution = "lognormal", mean = "1.55 ms", cv = 0.02 }``
        or ``{ mixture = [{ weight = 0.9, law = ... }, ...] }``.
    context : Context
        Where it stands.
    depth : int
        Mixtures around it.

    Raises `PlanError` that names the key, the value and what was expected.
    """
    where = context.where
    if has_samples(spec):
        samples = read_samples(spec, context)
        with located(where):
            return Empirical(samples)  # type: ignore[arg-type]
    if not isinstance(spec, Mapping):
        return Constant(context.quantity(spec))
    if "mixture" in spec:
        return _mixture(spec, context, depth)
    if "distribution" not in spec:
        found = next((shown(key) for key in spec), "an empty table")
        raise PlanError(
            f"{where}: a law needs one of 'samples', 'file', 'distribution',"
            f" 'mixture'; found {found}"
        )
    name = text(spec["distribution"], f"{where}.distribution")
    if name not in _FAMILIES:
        raise PlanError(
            f"{where}.distribution: unknown distribution {name[:60]!r}"
            f"{nearest(name, tuple(_FAMILIES))}"
        )
    family = _FAMILIES[name]
    known = {key for keys in family.parameters for key in keys}
    check_keys(spec, ("distribution", *sorted(known | set(family.optional))), where)
    given = frozenset(spec) - {"distribution", *family.optional}
    if given not in map(frozenset, family.parameters):
        ways = "; or ".join(", ".join(keys) for keys in family.parameters)
        found = ", ".join(sorted(given)) or "nothing"
        raise PlanError(f"{where}: {name} needs {ways}; found {found}")
    return as_law(family.make(_Parameters(spec, context)), name=where)


class _Parameters:
    """Parameters of a named distribution, read and checked one by one."""

    def __init__(self, table: Mapping[str, Any], context: Context) -> None:
        self.table = table
        self.context = context

    def __contains__(self, key: str) -> bool:
        return key in self.table

    def fail(self, key: str, expected: str) -> PlanError:
        return PlanError(
            f"{self.context.where}.{key}: {shown(self.table[key])} found;"
            f" expected {expected}"
        )

    def quantity(self, key: str) -> float:
        return self.context.at(key).quantity(self.table[key])

    def positive(self, key: str) -> float:
        value = self.quantity(key)
        if value <= 0:
            raise self.fail(key, "more than zero")
        return value

    def number(self, key: str) -> float:
        where = f"{self.context.where}.{key}"
        value = quantity(self.table[key], dimension="number", where=where)
        # Far outside these the law is a constant, or no double holds its moments.
        if not 1e-7 <= value <= _MOST.get(key, 1e7):
            most = f"{_MOST.get(key, 1e7):g}"
            raise self.fail(key, f"a number from 1e-07 to {most}")
        return value

    def offset(self) -> float:
        return self.quantity("offset") if "offset" in self else 0.0

    def mean_and_cv(self) -> tuple[float, float]:
        mean = self.positive("mean")
        if "cv" in self:
            return mean, self.number("cv")
        cv = self.positive("sd") / mean
        if not 1e-7 <= cv <= _MOST["cv"]:
            raise self.fail("sd", f"1e-07 to {_MOST['cv']:g} times the mean")
        return mean, cv


def _constant(p: _Parameters) -> Any:
    return p.quantity("value")


def _exponential(p: _Parameters) -> Any:
    from scipy import stats

    return stats.expon(loc=p.offset(), scale=p.positive("mean"))


def _gamma(p: _Parameters) -> Any:
    from scipy import stats

    if "shape" in p:
        shape, size = p.number("shape"), p.positive("scale")
    else:
        # mean = shape size and cv = 1 / sqrt(shape)
        mean, cv = p.mean_and_cv()
        shape, size = cv**-2, mean * cv**2
    return stats.gamma(shape, loc=p.offset(), scale=size)


def _lognormal(p: _Parameters) -> Any:
    from scipy import stats

    if "median" in p:
        median, sigma = p.positive("median"), p.number("sigma")
    else:
        # cv^2 = exp(sigma^2) - 1 and mean = median exp(sigma^2 / 2)
        mean, cv = p.mean_and_cv()
        sigma = math.sqrt(math.log1p(cv**2))
        median = mean / math.sqrt(1.0 + cv**2)
    return stats.lognorm(sigma, loc=p.offset(), scale=median)


def _normal(p: _Parameters) -> Any:
    from scipy import stats

    if p.context.signed and "sd" in p:
        mean, sd = p.quantity("mean"), p.positive("sd")
        lowest = -math.inf
    else:
        mean, cv = p.mean_and_cv()
        sd = cv * mean
        lowest = 0.0
        if "lower" not in p and mean < _SAFE_NORMAL * sd:
            below = stats.norm.cdf(-mean / sd)
            raise PlanError(
                f"{p.context.where}: this normal law is negative with probability"
                f" {below:.2g}; state lower = 0 to cut it there, or use 'lognormal'"
                " or 'gamma'"
            )
    lower = p.quantity("lower") if "lower" in p else lowest
    upper = p.quantity("upper") if "upper" in p else math.inf
    if not lowest <= lower < upper:
        raise PlanError(
            f"{p.context.where}: lower = {lower:g} and upper = {upper:g} found;"
            " expected lower < upper" + ("" if lowest < 0 else " and no less than 0")
        )
    cut = ((lower - mean) / sd, (upper - mean) / sd)
    if stats.norm.cdf(cut[1]) - stats.norm.cdf(cut[0]) < 1e-6:
        raise PlanError(
            f"{p.context.where}: lower and upper leave next to nothing of this law"
        )
    return stats.truncnorm(*cut, loc=mean, scale=sd)


def _pareto(p: _Parameters) -> Any:
    from scipy import stats

    return stats.pareto(p.number("shape"), loc=p.offset(), scale=p.positive("scale"))


def _uniform(p: _Parameters) -> Any:
    from scipy import stats

    low, high = p.quantity("low"), p.quantity("high")
    if not low < high:
        raise p.fail("high", f"more than low = {shown(p.table['low'])}")
    return stats.uniform(low, high - low)


def _weibull(p: _Parameters) -> Any:
    from scipy import stats

    size = p.positive("scale")
    return stats.weibull_min(p.number("shape"), loc=p.offset(), scale=size)


@dataclass(frozen=True, slots=True)
class _Family:
    """A named distribution: how to make it, and which parameters say it."""

    make: Callable[[_Parameters], Any]
    parameters: tuple[tuple[str, ...], ...]
    optional: tuple[str, ...] = ("offset",)


_MOMENTS = (("mean", "cv"), ("mean", "sd"))
_FAMILIES = {
    "constant": _Family(_constant, (("value",),), ()),
    "exponential": _Family(_exponential, (("mean",),)),
    "gamma": _Family(_gamma, (*_MOMENTS, ("shape", "scale"))),
    "lognormal": _Family(_lognormal, (*_MOMENTS, ("median", "sigma"))),
    "normal": _Family(_normal, _MOMENTS, ("lower", "upper")),
    "pareto": _Family(_pareto, (("shape", "scale"),)),
    "uniform": _Family(_uniform, (("low", "high"),), ()),
    "weibull": _Family(_weibull, (("shape", "scale"),)),
}


def _mixture(spec: Mapping[str, Any], context: Context, depth: int) -> Distribution:
    from probcalc.composed import mixture

    where = f"{context.where}.mixture"
    parts = check_keys(spec, ("mixture",), context.where)["mixture"]
    if depth >= _MAX_NESTED:
        raise PlanError(f"{where}: more than {_MAX_NESTED} mixtures inside each other")
    if not isinstance(parts, list) or not 0 < len(parts) <= _MAX_PARTS:
        raise PlanError(
            f"{where}: {shown(parts)} found; expected a list of 1 to {_MAX_PARTS}"
            " tables { weight = ..., law = ... }"
        )
    weights, laws = [], []
    for index, part in enumerate(parts):
        at = f"{where}[{index}]"
        table = check_keys(part, ("weight", "law"), at)
        for key in ("weight", "law"):
            if key not in table:
                raise PlanError(f"{at}: {key!r} is missing")
        weight = quantity(table["weight"], dimension="number", where=f"{at}.weight")
        if weight < 0:
            raise PlanError(f"{at}.weight: {weight:g} found; expected zero or more")
        weights.append(weight)
        inner = context.at(f"mixture[{index}].law")
        laws.append(read_law(table["law"], inner, depth=depth + 1))
    total = math.fsum(weights)
    if abs(total - 1.0) > 1e-9:
        raise PlanError(f"{where}: weights add up to {total:.9g}; expected 1")
    with located(where):
        return mixture(weights, laws)
