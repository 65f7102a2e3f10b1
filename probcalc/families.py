"""Named families in closed form: distribution functions, partial moments, transforms.

The lattice engine needs the mass and the first moment of every cell, the transform
inversion needs the moment generating function and a bound of how fast it decays.
Both are closed forms for the families met most, and closed forms keep the relative
accuracy of each tail, which differences such as ``1 - cdf`` do not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from probcalc.errors import InputError
from probcalc.kernels.standard import STANDARD, Function, Standard
from probcalc.kernels.transforms import TRANSFORMS

__all__ = ["Family", "family_of"]


@dataclass(frozen=True, slots=True)
class Family:
    """One law of a named family, ``loc + scale * Z``, as vectorised functions.

    Parameters
    ----------
    kind : str
        Canonical family: ``norm lognorm gamma uniform lomax levy weibull invgauss
        beta triang truncnorm loguniform exponnorm``. Others are written as these
        (``expon`` is ``gamma`` of shape 1, ``pareto`` a shifted ``lomax``).
    shapes : tuple of float
        Shape parameters of the canonical family.
    loc, scale : float
        Location and scale; a negative scale reflects the law.

    Notes
    -----
    Equal fields mean equal laws, so instances serve as keys for deduplication.
    """

    kind: str
    shapes: tuple[float, ...]
    loc: float
    scale: float
    _z: Standard = field(repr=False, compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what defines the law; its functions are looked up again."""
        return _make, (self.kind, self.shapes, self.loc, self.scale)

    def _standardise(self, x: ArrayLike) -> NDArray[np.float64]:
        z = (np.asarray(x, dtype=float) - self.loc) / self.scale
        big = np.finfo(float).max
        return np.clip(z, max(self._z.lower, -big), min(self._z.upper, big))

    def _apply(
        self, function: Function, x: ArrayLike, ends: tuple[float, float] | None = None
    ) -> NDArray[np.float64]:
        """Values of a standard function; `ends` are those at the support's ends."""
        z = self._standardise(x)
        with np.errstate(all="ignore"):
            value = np.asarray(function(np.atleast_1d(z)), dtype=float).reshape(z.shape)
        if ends is None:
            return value
        low, high = ends if self.scale > 0 else ends[::-1]
        x = np.asarray(x, dtype=float)
        value = np.where(x <= self.lower, low, np.where(x >= self.upper, high, value))
        return np.where(np.isnan(x), np.nan, value)

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X <= x), accurate relative to itself in the lower tail."""
        if self.scale > 0:
            return self._apply(self._z.cdf, x, (0.0, 1.0))
        return self._apply(self._z.sf, x, (1.0, 0.0))

    def sf(self, x: ArrayLike) -> NDArray[np.float64]:
        """P(X > x), accurate relative to itself in the upper tail."""
        if self.scale > 0:
            return self._apply(self._z.sf, x, (1.0, 0.0))
        return self._apply(self._z.cdf, x, (0.0, 1.0))

    def pdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Density at `x`; 0 outside the support, inf where it is unbounded."""
        x = np.asarray(x, dtype=float)
        f = self._apply(self._z.pdf, x) / abs(self.scale)
        return np.where((x >= self.lower) & (x <= self.upper), f, 0.0)

    def partial_below(self, x: ArrayLike) -> NDArray[np.float64]:
        """E[X; X <= x], finite also where the mean is not.

        With X = loc + scale Z it is loc P(X <= x) + scale E[Z; ...]; accurate relative
        to the larger of the two terms.
        """
        if self.scale > 0:
            return self._partial(self._z.below, (0.0, self._z.mean), self.cdf, x)
        return self._partial(self._z.above, (self._z.mean, 0.0), self.cdf, x)

    def partial_above(self, x: ArrayLike) -> NDArray[np.float64]:
        """E[X; X > x]; inf where the mean is, except at the end of the support."""
        if self.scale > 0:
            return self._partial(self._z.above, (self._z.mean, 0.0), self.sf, x)
        return self._partial(self._z.below, (0.0, self._z.mean), self.sf, x)

    def _partial(
        self, part: Function, ends: tuple[float, float], mass: Function, x: ArrayLike
    ) -> NDArray[np.float64]:
        tail = self.scale * self._apply(part, x, ends)
        return tail if self.loc == 0.0 else tail + self.loc * mass(x)

    @property
    def lower(self) -> float:
        """Lower end of the support."""
        z = self._z.lower if self.scale > 0 else self._z.upper
        return self.loc + self.scale * z

    @property
    def upper(self) -> float:
        """Upper end of the support."""
        z = self._z.upper if self.scale > 0 else self._z.lower
        return self.loc + self.scale * z

    @property
    def mean(self) -> float:
        """Expectation; may be inf."""
        return self.loc + self.scale * self._z.mean

    @property
    def variance(self) -> float:
        """Variance; may be inf."""
        return self.scale * self.scale * self._z.variance

    @property
    def mode(self) -> float | None:
        """Mode of a unimodal density; None where there are two."""
        return None if self._z.mode is None else self.loc + self.scale * self._z.mode

    @property
    def smooth(self) -> bool:
        """Whether the transform is in closed form with a proven rate of decay."""
        return self.kind in TRANSFORMS

    @property
    def theta_min(self) -> float:
        """Left end of the strip in which the moment generating function is finite."""
        return self._strip()[0]

    @property
    def theta_max(self) -> float:
        """Right end of the strip in which the moment generating function is finite."""
        return self._strip()[1]

    def _strip(self) -> tuple[float, float]:
        if not self.smooth:
            return 0.0, 0.0
        top = TRANSFORMS[self.kind][0](*self.shapes)
        low = -math.inf
        if self.scale < 0:
            low, top = -top, -low
        return low / abs(self.scale), top / abs(self.scale)

    def log_mgf(self, z: ArrayLike) -> NDArray[np.complex128] | None:
        """Log E exp(z X) for complex `z` in the strip; None without a closed form.

        The imaginary part may be off by a multiple of 2 pi for a uniform law.
        """
        if not self.smooth:
            return None
        z = np.asarray(z, dtype=complex)
        with np.errstate(all="ignore"):
            log = TRANSFORMS[self.kind][1](z * self.scale, *self.shapes)
        return np.asarray(z * self.loc + log, dtype=complex)

    def decay(self, theta: float, w: ArrayLike) -> tuple[Any, Any]:
        """Bound of the tilted characteristic function from frequency `w` onwards.

        Parameters
        ----------
        theta : float
            Tilt, inside the strip.
        w : array_like, positive
            Angular frequency (1 / unit of x).

        Returns
        -------
        log_bound : float or array
            log of a bound of ``|M(theta + iw) / M(theta)|``; 0 without a closed form.
        slope : float or array
            Upper bound, at every frequency >= w, of d log_bound / d log w.
        """
        w = np.asarray(w, dtype=float)
        if not self.smooth:
            return np.zeros_like(w)[()], np.zeros_like(w)[()]
        bound = TRANSFORMS[self.kind][2]
        log, slope = bound(theta * self.scale, w * abs(self.scale), *self.shapes)
        return np.asarray(log)[()], np.asarray(slope)[()]


# --------------------------------------------------------------- recognition
def _need(ok: bool, name: str, field: str, value: float, expected: str) -> None:
    if not ok:
        raise InputError(f"law {name}: {field} = {value!r}, expected {expected}")


def _positive(name: str, field: str, value: float) -> float:
    _need(0.0 < value < math.inf, name, field, value, "a positive finite number")
    return value


def _make(kind: str, shapes: tuple[float, ...], loc: float, scale: float) -> Family:
    return Family(kind, shapes, loc, scale, STANDARD[kind](*shapes))


def _build(name: str, p: dict[str, float], loc: float, scale: float) -> Family | None:
    """Family of a SciPy name with its shape parameters `p`; None if not known."""
    if name not in _SHAPES:
        return None
    one = [_positive(name, k, p[k]) for k in _SHAPES[name]]
    match name:
        case "expon":
            return _make("gamma", (1.0,), loc, scale)
        case "chi2":
            return _make("gamma", (0.5 * one[0],), loc, 2.0 * scale)
        case "gamma" | "erlang":
            return _make("gamma", (one[0],), loc, scale)
        case "pareto":
            return _make("lomax", (one[0],), loc + scale, scale)
        case "halfnorm":
            return _make("truncnorm", (0.0, math.inf), loc, scale)
        case "weibull_min":
            return _make("weibull", (one[0],), loc, scale)
        case "genpareto":
            return _genpareto(p["c"], loc, scale)
        case "triang":
            _need(0.0 <= p["c"] <= 1.0, name, "c", p["c"], "a number in [0, 1]")
            return _make("triang", (p["c"],), loc, scale)
        case "loguniform" | "reciprocal":
            a, b = one
            _need(a < b, name, "b", b, f"more than a = {a!r}")
            return _make("loguniform", (a, b), loc, scale)
        case "truncnorm":
            a, b = p["a"], p["b"]
            _need(a < b, name, "b", b, f"more than a = {a!r}")
            if a + b < 0.0:
                a, b, scale = -b, -a, -scale
            return _make("truncnorm", (a, b), loc, scale)
    return _make(name, tuple(one), loc, scale)


def _genpareto(c: float, loc: float, scale: float) -> Family:
    # sf = (1 + c z)^(-1/c): c > 0 is a Lomax law of shape 1/c and scale 1/c, c = 0
    # exponential, c < 0 a beta(1, 1/|c|) law of scale 1/|c|.
    _need(math.isfinite(c), "genpareto", "c", c, "a finite number")
    if c == 0.0:
        return _make("gamma", (1.0,), loc, scale)
    if c > 0.0:
        return _make("lomax", (1.0 / c,), loc, scale / c)
    return _make("beta", (1.0, -1.0 / c), loc, -scale / c)


# SciPy name -> shape parameters that must be positive (others are checked apart)
_SHAPES: dict[str, tuple[str, ...]] = {
    "norm": (), "lognorm": ("s",), "gamma": ("a",), "expon": (), "chi2": ("df",),
    "erlang": ("a",), "uniform": (), "pareto": ("b",), "levy": (), "lomax": ("c",),
    "weibull_min": ("c",), "invgauss": ("mu",), "beta": ("a", "b"), "triang": (),
    "truncnorm": (), "halfnorm": (), "genpareto": (), "loguniform": ("a", "b"),
    "reciprocal": ("a", "b"), "exponnorm": ("K",),
}  # fmt: skip


def family_of(law: object) -> Family | None:
    """Recognise the family of one law; None where it is not known here.

    Recognises SciPy's frozen distributions, its newer distribution objects (shifted
    and scaled ones too) and adapters that carry a frozen one as ``law.frozen``.

    Raises
    ------
    InputError
        A parameter is not a number, or outside its range; a copied ``stats.Normal``,
        which SciPy has changed.

    Examples
    --------
    >>> from scipy import stats
    >>> family = family_of(stats.lognorm(0.5))
    >>> float(family.partial_above(1.0) + family.partial_below(1.0))
    1.133148453066826
    """
    if isinstance(law, Family):
        return law
    law = getattr(law, "frozen", law)
    if type(law).__module__.startswith("scipy.stats"):
        frozen = getattr(law, "dist", None)
        return _from_frozen(law, frozen) if frozen is not None else _from_new(law)
    return None


def _scalars(name: str, values: dict[str, Any]) -> dict[str, float] | None:
    """Values as floats; None where one is an array."""
    if any(np.ndim(v) for v in values.values()):
        return None
    out = {k: float(v) for k, v in values.items()}
    for k, v in out.items():
        _need(not math.isnan(v), name, k, v, "a number")
    return out


def _from_frozen(law: Any, dist: Any) -> Family | None:
    name = str(dist.name)
    if name not in _SHAPES or not type(dist).__module__.startswith("scipy.stats"):
        return None
    order = [s.strip() for s in dist.shapes.split(",")] if dist.shapes else []
    given = dict(zip([*order, "loc", "scale"], law.args, strict=False)) | law.kwds
    p = _scalars(name, {"loc": 0.0, "scale": 1.0} | given)
    if p is None:
        return None
    _need(math.isfinite(p["loc"]), name, "loc", p["loc"], "a finite number")
    return _build(name, p, p["loc"], _positive(name, "scale", p["scale"]))


def _spoilt(law: Any) -> bool:
    """Whether a law is or contains a normal one that SciPy spoilt as it was copied.

    ``scipy.stats.Normal.__new__`` without arguments, as copying and unpickling call
    it, makes a `StandardNormal`: what is left of the parameters gives it away.
    """
    if type(law).__name__ == "StandardNormal":
        return bool(getattr(law, "_parameters", None))
    inside = (getattr(law, "_dist", None), *getattr(law, "_components", ()))
    return any(part is not None and _spoilt(part) for part in inside)


def _from_new(law: Any) -> Family | None:
    kind = type(law).__name__
    if _spoilt(law):
        raise InputError(
            "law Normal: SciPy makes a standard normal law of a copied or unpickled "
            "stats.Normal; expected the original, or stats.norm, which can be copied"
        )
    if kind in ("Normal", "StandardNormal"):
        p = _scalars("Normal", {"mu": law.mu, "sigma": law.sigma})
        if p is None:
            return None
        return _build("norm", {}, p["mu"], _positive(kind, "sigma", p["sigma"]))
    if kind == "Uniform":
        p = _scalars("Uniform", {"a": law.a, "b": law.b})
        if p is None:
            return None
        width = _positive(kind, "b - a", p["b"] - p["a"])
        return _build("uniform", {}, p["a"], width)
    if kind == "ShiftedScaledDistribution":
        p = _scalars(kind, {"loc": law.loc, "scale": law.scale})
        inner = family_of(law._dist)
        if p is None or inner is None or p["scale"] == 0.0:
            return None
        loc = p["loc"] + p["scale"] * inner.loc
        return _make(inner.kind, inner.shapes, loc, p["scale"] * inner.scale)
    # make_distribution(stats.gamma): its class keeps bound methods of stats.gamma.
    for member in vars(type(law)).values():
        dist = getattr(member, "__self__", None)
        name = getattr(dist, "name", None)
        if name in _SHAPES and type(dist).__module__.startswith("scipy.stats"):
            shapes = getattr(dist, "shapes", None)
            order = [s.strip() for s in shapes.split(",")] if shapes else []
            p = _scalars(name, {k: getattr(law, k) for k in order})
            return None if p is None else _build(name, p, 0.0, 1.0)
    return None
