"""Laws of one quantity: the protocol, and the laws that are given rather than composed.

The protocol has the names of SciPy's distribution infrastructure (SciPy >= 1.15),
so that its objects are laws as they are. Frozen ``scipy.stats`` variables and plain
numbers are taken at the door by `as_law`.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from probcalc.errors import InputError
from probcalc.readonly import reduced

__all__ = [
    "Bounds",
    "Constant",
    "Distribution",
    "Empirical",
    "Frozen",
    "Kind",
    "Probability",
    "Quantile",
    "as_law",
    "as_samples",
    "law_key",
    "levels",
]

FloatArray = npt.NDArray[np.float64]
Kind = Literal["certified", "confidence", "estimate", "open"]


@runtime_checkable
class Distribution(Protocol):
    """Law of one real quantity, in SciPy's vocabulary."""

    def support(self) -> tuple[Any, Any]:
        """Return the smallest and the largest possible value."""
        ...

    def cdf(self, x: Any, /) -> Any:
        """P(X <= x)."""
        ...

    def ccdf(self, x: Any, /) -> Any:
        """P(X > x), accurate in the upper tail."""
        ...

    def icdf(self, p: Any, /) -> Any:
        """Return the smallest x with P(X <= x) >= p."""
        ...

    def iccdf(self, p: Any, /) -> Any:
        """Return the smallest x with P(X > x) <= p."""
        ...

    def mean(self) -> Any:
        """E X."""
        ...

    def variance(self) -> Any:
        """Var X."""
        ...

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw independent values; `rng` is a NumPy generator or a seed."""
        ...


@dataclass(frozen=True, slots=True)
class Quantile:
    """A quantile with its own error.

    Parameters
    ----------
    p, sf : float
        Level, as P(X <= x) and as P(X > x); ``sf`` is exact where ``p`` is near 1.
    value : float
        The best estimate.
    lower, upper : float
        Bracket (`kind` says of which sort); infinite where a side is open.
    kind : {"certified", "confidence", "estimate", "open"}
        ``certified``: holds whatever happens, rounding included; ``confidence``:
        sampling interval; ``estimate``: approximate method, no bound; ``open``: one
        side cannot be bounded from what is known.
    limited_by : str
        What set the width.
    """

    p: float
    value: float
    lower: float
    upper: float
    kind: Kind
    limited_by: str
    sf: float

    @property
    def relative_width(self) -> float:
        """Width of the bracket over the size of the value."""
        width = self.upper - self.lower
        if width == 0.0:
            return 0.0
        size = max(abs(self.lower), abs(self.upper))
        return width / size if math.isfinite(size) else math.inf


@dataclass(frozen=True, slots=True)
class Probability:
    """A probability with its error; `kind` as in `Quantile`."""

    value: float
    lower: float
    upper: float
    kind: Kind


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number (mean, expected shortfall) with its error; `kind` as in `Quantile`."""

    value: float
    lower: float
    upper: float
    kind: Kind


def levels(p: float | None, sf: float | None) -> tuple[float, float]:
    """Check a level given as `p` or as `sf` and return both.

    Raises
    ------
    InputError
        Unless exactly one is given, strictly between 0 and 1.
    """
    if (p is None) == (sf is None):
        raise InputError(
            f"quantile: give exactly one of p and sf, got p={p!r} and sf={sf!r}"
        )
    name, given = ("p", p) if sf is None else ("sf", sf)
    if isinstance(given, bool) or not isinstance(given, numbers.Real):
        raise InputError(
            f"quantile: {name} must be a number between 0 and 1, got {given!r}"
        )
    level = float(given)
    if not 0.0 < level < 1.0:
        raise InputError(
            f"quantile: {name} must be strictly between 0 and 1, got {level!r}"
        )
    return (level, 1.0 - level) if sf is None else (1.0 - level, level)


def generator(rng: Any) -> np.random.Generator:
    """Return a NumPy generator from a generator, a seed or None."""
    return np.random.default_rng(rng)


@dataclass(frozen=True, slots=True)
class Constant:
    """A quantity that is always the same.

    >>> Constant(3.0).icdf(0.5)
    3.0
    """

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise InputError(f"constant law: value must be finite, got {self.value!r}")

    def support(self) -> tuple[float, float]:
        """Return the value, twice."""
        return self.value, self.value

    def cdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X <= x)."""
        return _stepped(np.array([self.value]), np.array([0.0, 1.0]), x)

    def ccdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X > x)."""
        return _stepped(np.array([self.value]), np.array([1.0, 0.0]), x)

    def icdf(self, p: npt.ArrayLike, /) -> Any:
        """Return the value at every level."""
        level = _levels_or_nan(p)
        return _item(np.where(np.isnan(level), np.nan, self.value))

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Return the value at every level."""
        return self.icdf(p)

    def mean(self) -> float:
        """Return the value."""
        return self.value

    def variance(self) -> float:
        """Return zero."""
        return 0.0

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Return copies of the value."""
        return np.full(shape, self.value)[()]


def as_samples(
    values: npt.ArrayLike,
    *,
    where: str,
    nan: Literal["raise", "omit"] = "raise",
) -> FloatArray:
    """Check measured values and return them as a read-only vector.

    Parameters
    ----------
    values : array_like, shape (runs,)
        Measured values in SI units.
    where : str
        Named in errors, such as ``"element 'rms', time"``.
    nan : {"raise", "omit"}
        What to do with missing values; they are never taken for zero.

    Raises
    ------
    InputError
        Not numbers, not one-dimensional, empty, NaN (first index named), infinite.
    """
    array = _numbers(values, f"{where}: samples")
    if array.ndim != 1:
        raise InputError(
            f"{where}: samples must be one-dimensional, got shape {array.shape}"
        )
    missing = np.isnan(array)
    if missing.any():
        if nan == "raise":
            raise InputError(
                f"{where}: sample {int(np.argmax(missing))} is NaN "
                f"({int(missing.sum())} of {array.size}); drop it with nan='omit'"
            )
        array = array[~missing]
    if array.size == 0:
        raise InputError(f"{where}: no samples, expected at least one")
    infinite = ~np.isfinite(array)
    if infinite.any():
        index = int(np.argmax(infinite))
        raise InputError(
            f"{where}: sample {index} is {array[index]!r}, expected a finite number"
        )
    array += 0.0  # turns -0.0 into 0.0
    array.flags.writeable = False
    return array


def _numbers(values: npt.ArrayLike, what: str) -> FloatArray:
    """A new array of floats; text and truth values are not taken for numbers."""
    try:
        given = np.asarray(values)
        if given.dtype.kind in "iuf" or given.size == 0:
            return np.array(given, dtype=np.float64)
        if given.dtype.kind == "O" and all(
            isinstance(v, numbers.Real) and not isinstance(v, bool) for v in given.flat
        ):
            return given.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InputError(f"{what} must be numbers, got {values!r:.80}")


@dataclass(frozen=True, slots=True, eq=False)
class Empirical:
    """Law of measured runs: each run (or its weight) is an atom.

    Quantiles are values that occurred: the inverse of the empirical distribution
    function, without interpolation. Ties and atoms are kept.

    Parameters
    ----------
    samples : array_like, shape (runs,)
        Runs in the order measured.
    blocks : sequence of hashable, length runs, optional
        Label of the block (fresh process) of each run.
    weights : array_like, shape (runs,), optional
        Probability of each run; equal when absent.
    nan : {"raise", "omit"}
        Missing values raise an error or are left out.

    Raises
    ------
    InputError
        Empty, NaN, infinite values; lengths that differ; negative weights or weights
        that sum to zero; block labels of different kinds.

    Examples
    --------
    >>> Empirical([5, 3, 6, -1, 3]).icdf(0.8)
    5.0
    """

    samples: FloatArray
    blocks: tuple[Hashable, ...] | None = None
    weights: FloatArray | None = None
    nan: Literal["raise", "omit"] = "raise"
    atoms: FloatArray = field(init=False, repr=False)
    mass: FloatArray = field(init=False, repr=False)
    below: FloatArray = field(init=False, repr=False)
    above: FloatArray = field(init=False, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            samples: npt.ArrayLike,
            blocks: Sequence[Hashable] | None = None,
            weights: npt.ArrayLike | None = None,
            nan: Literal["raise", "omit"] = "raise",
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.nan not in ("raise", "omit"):
            raise InputError(
                f"empirical law: nan must be 'raise' or 'omit', got {self.nan!r}"
            )
        samples = as_samples(self.samples, where="empirical law", nan=self.nan)
        given = np.asarray(self.samples, dtype=float)
        kept = None if samples.size == given.size else ~np.isnan(given)
        blocks = _checked_blocks(self.blocks, given.size, kept)
        weights = _checked_weights(self.weights, given.size, kept)
        atoms, inverse, counts = np.unique(
            samples, return_inverse=True, return_counts=True
        )
        # With equal weights the cumulative probabilities are ratios of integers, each
        # rounded once: levels such as 4/5 compare exactly with p = 0.8.
        if weights is None:
            mass = counts / samples.size
            at_most = np.cumsum(counts)
            below = at_most / samples.size
            above = (samples.size - at_most) / samples.size
        else:
            mass = np.bincount(inverse, weights=weights, minlength=atoms.size)
            below = np.minimum(np.cumsum(mass), 1.0)
            below[-1] = 1.0
            above = np.append(np.cumsum(mass[:0:-1])[::-1], 0.0)
        for name, value in (
            ("samples", samples),
            ("blocks", blocks),
            ("weights", weights),
            ("atoms", atoms),
            ("mass", mass),
            ("below", below),
            ("above", above),
        ):
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle with read-only arrays."""
        return reduced(self)

    def __repr__(self) -> str:
        blocks = "" if self.blocks is None else f", {len(set(self.blocks))} blocks"
        return (
            f"<Empirical: {self.samples.size} runs{blocks}, "
            f"mean {self.mean():.6g}, "
            f"range {self.atoms[0]:.6g} to {self.atoms[-1]:.6g}>"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Empirical):
            return NotImplemented
        return (
            np.array_equal(self.samples, other.samples)
            and self.blocks == other.blocks
            and (self.weights is None) == (other.weights is None)
            and (self.weights is None or np.array_equal(self.weights, other.weights))  # type: ignore[arg-type]
        )

    def __hash__(self) -> int:
        return hash((self.samples.tobytes(), self.blocks))

    def support(self) -> tuple[float, float]:
        """Return the smallest and the largest run."""
        return float(self.atoms[0]), float(self.atoms[-1])

    def cdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X <= x)."""
        return _stepped(self.atoms, np.append(0.0, self.below), x)

    def ccdf(self, x: npt.ArrayLike, /) -> Any:
        """P(X > x)."""
        return _stepped(self.atoms, np.append(1.0, self.above), x)

    def icdf(self, p: npt.ArrayLike, /) -> Any:
        """Return the smallest run with P(X <= x) >= p."""
        level = _levels_or_nan(p)
        index = np.searchsorted(self.below, level, side="left")
        values = self.atoms[np.minimum(index, self.atoms.size - 1)]
        return _item(np.where(np.isnan(level), np.nan, values))

    def iccdf(self, p: npt.ArrayLike, /) -> Any:
        """Return the smallest run with P(X > x) <= p."""
        level = _levels_or_nan(p)
        index = np.searchsorted(-self.above, -level, side="left")
        values = self.atoms[np.minimum(index, self.atoms.size - 1)]
        return _item(np.where(np.isnan(level), np.nan, values))

    def mean(self) -> float:
        """Return the mean over runs."""
        # Scaled, so that sums of values near the largest double do not overflow.
        size = float(np.abs(self.atoms).max()) or 1.0
        return size * float((self.atoms / size) @ self.mass)

    def variance(self) -> float:
        """Return the variance of the law (divisor n: the law is the runs)."""
        deviation = self.atoms - self.mean()
        size = float(np.abs(deviation).max()) or 1.0
        relative = deviation / size
        root = math.sqrt(float((relative * relative) @ self.mass)) * size
        return root * root if root < 1e154 else math.inf

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw runs with replacement."""
        chosen = generator(rng).choice(self.samples.size, size=shape, p=self.weights)
        return self.samples[chosen]


def _levels_or_nan(p: npt.ArrayLike) -> FloatArray:
    level = np.asarray(p, dtype=float)
    return np.where((level >= 0.0) & (level <= 1.0), level, np.nan)


def _stepped(atoms: FloatArray, values: FloatArray, x: npt.ArrayLike) -> Any:
    """Right-continuous step function; NaN where x is NaN, as SciPy's laws answer."""
    at = np.asarray(x, dtype=float)
    index = np.searchsorted(atoms, at, side="right")
    return np.where(np.isnan(at), np.nan, values[np.minimum(index, atoms.size)])[()]


def _item(value: Any) -> Any:
    return value.item() if np.ndim(value) == 0 else value


def _checked_blocks(
    blocks: Sequence[Hashable] | None, runs: int, kept: npt.NDArray[np.bool_] | None
) -> tuple[Hashable, ...] | None:
    if blocks is None:
        return None
    labels = tuple(b.item() if isinstance(b, np.generic) else b for b in blocks)
    for index, label in enumerate(labels):
        if not isinstance(label, Hashable):
            raise InputError(
                f"empirical law: block label {index} is {label!r}, "
                "expected a number or a name"
            )
    if len(labels) != runs:
        raise InputError(
            f"empirical law: {len(labels)} block labels for {runs} runs, "
            "expected one for each"
        )
    kinds = sorted({type(label).__name__ for label in labels})
    if len(kinds) > 1:
        raise InputError(
            f"empirical law: block labels of different kinds ({', '.join(kinds)}), "
            "expected one kind"
        )
    if kept is not None:
        labels = tuple(label for label, keep in zip(labels, kept, strict=True) if keep)
    return labels


def _checked_weights(
    weights: npt.ArrayLike | None, runs: int, kept: npt.NDArray[np.bool_] | None
) -> FloatArray | None:
    if weights is None:
        return None
    array = _numbers(weights, "empirical law: weights")
    if array.shape != (runs,):
        raise InputError(
            f"empirical law: weights of shape {array.shape} for {runs} runs, "
            "expected one for each"
        )
    if kept is not None:
        array = array[kept]
    if not np.isfinite(array).all() or (array < 0).any():
        index = int(np.argmax(~np.isfinite(array) | (array < 0)))
        raise InputError(
            f"empirical law: weight {index} is {array[index]!r}, "
            "expected a finite number >= 0"
        )
    total = float(array.sum())
    if total <= 0.0:
        raise InputError("empirical law: weights sum to zero, expected positive mass")
    return array / total


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """A frozen ``scipy.stats`` variable in the names of the protocol."""

    frozen: Any

    @property
    def discrete(self) -> bool:
        """Whether the law sits on integers (it has a ``pmf``)."""
        return hasattr(self.frozen.dist, "pmf") or hasattr(self.frozen.dist, "_pmf")

    def support(self) -> tuple[float, float]:
        """Return the smallest and the largest possible value."""
        low, high = self.frozen.support()
        return float(low), float(high)

    def cdf(self, x: Any, /) -> Any:
        """P(X <= x)."""
        return self.frozen.cdf(x)

    def ccdf(self, x: Any, /) -> Any:
        """P(X > x)."""
        return self.frozen.sf(x)

    def icdf(self, p: Any, /) -> Any:
        """Return the smallest x with P(X <= x) >= p."""
        return self.frozen.ppf(p)

    def iccdf(self, p: Any, /) -> Any:
        """Return the smallest x with P(X > x) <= p."""
        return self.frozen.isf(p)

    def pdf(self, x: Any, /) -> Any:
        """Density (continuous laws)."""
        return self.frozen.pdf(x)

    def mean(self) -> float:
        """E X."""
        return float(self.frozen.mean())

    def variance(self) -> float:
        """Var X."""
        return float(self.frozen.var())

    def sample(self, shape: Any = (), /, *, rng: Any = None) -> Any:
        """Draw independent values."""
        return self.frozen.rvs(size=shape, random_state=generator(rng))


def as_law(x: Any, *, name: str = "law") -> Distribution:
    """Take a number, a SciPy distribution or a law, and return a law.

    Parameters
    ----------
    x : float, law, SciPy distribution or frozen variable
    name : str
        Named in the error.

    Raises
    ------
    InputError
        For anything else, NaN and infinities; names what was given.

    Examples
    --------
    >>> as_law(1.5)
    Constant(value=1.5)
    """
    if isinstance(x, np.ndarray) and x.ndim == 0:
        x = x[()]
    if isinstance(x, bool | np.bool_):
        raise InputError(f"{name}: expected a number or a law, got {x!r}")
    if isinstance(x, numbers.Real):
        value = float(x)
        if not math.isfinite(value):
            raise InputError(f"{name}: expected a finite number or a law, got {x!r}")
        return Constant(value)
    if isinstance(x, Distribution):
        return x
    if hasattr(x, "dist") and hasattr(x, "ppf") and hasattr(x, "isf"):
        _check_parameters(x, name)
        return Frozen(x)
    hint = (
        "; wrap measured runs in Empirical(...)"
        if isinstance(x, list | tuple | np.ndarray)
        else ""
    )
    raise InputError(
        f"{name}: expected a number, a law or a SciPy distribution, "
        f"got {type(x).__name__} {x!r:.60}{hint}"
    )


def _check_parameters(frozen: Any, name: str) -> None:
    """Refuse parameters for which SciPy would answer NaN later, in silence."""
    try:
        broken = bool(np.ndim(frozen.cdf(0.0)) != 0)
    except (TypeError, ValueError) as problem:
        raise InputError(f"{name}: {frozen.dist.name} law: {problem}") from None
    if broken:
        raise InputError(
            f"{name}: {frozen.dist.name} law with array parameters, expected numbers"
        )
    if math.isnan(float(frozen.cdf(0.0))):
        raise InputError(
            f"{name}: {frozen.dist.name} law with parameters {frozen.args} "
            f"{frozen.kwds} that SciPy does not accept"
        )


_NAMED = ("scipy.stats._continuous_distns", "scipy.stats._discrete_distns")
_MADE_OF_DATA = ("rv_histogram",)


def law_key(law: Distribution) -> Hashable:
    """Return a key that equal laws share, so that each is worked out once."""
    if isinstance(law, Constant):
        return ("constant", law.value)
    if isinstance(law, Frozen):
        # Only SciPy's named families are known by name and parameters alone; a law
        # made from a histogram or a user's class carries more in its object.
        kind = type(law.frozen.dist)
        parameters = (law.frozen.args, tuple(sorted(law.frozen.kwds.items())))
        named = kind.__module__ in _NAMED and kind.__name__ not in _MADE_OF_DATA
        try:
            hash(parameters)
        except TypeError:
            named = False
        return ("frozen", kind, parameters) if named else id(law)
    if isinstance(law, Empirical):
        return law
    return id(law)
