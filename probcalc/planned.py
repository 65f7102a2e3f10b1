"""Plans predicted: which method, its laws, and what they take for granted."""

from __future__ import annotations

from typing import Any, NamedTuple

from probcalc.errors import CompositionError, InputError
from probcalc.plan import Plan

__all__ = ["Planned", "predicted"]

#: Nodes up to which `auto` works a series-parallel plan out exactly.
EXACT_NODES = 1024


class Planned(NamedTuple):
    """Laws of a plan.

    Attributes
    ----------
    laws : tuple
        Of time, energy, static energy and dynamic energy.
    method : str
    assumptions : tuple of str
    simulation : Simulation or None
    """

    laws: tuple[Any, Any, Any, Any]
    method: str
    assumptions: tuple[str, ...]
    simulation: Any


def predicted(plan: Plan, method: str, options: dict[str, Any]) -> Planned:
    """Predict a plan; nodes are independent but for its draw groups.

    Parameters
    ----------
    plan : Plan
    method : {"auto", "exact", "bounds", "moments", "monte-carlo"}
        ``auto`` is ``exact`` for a series-parallel plan of independent nodes, each
        with time and energy independent, of at most 1,024 nodes; else
        ``monte-carlo``.
    options : dict
        Arguments of `probcalc.montecarlo.simulate`; for ``monte-carlo`` alone.

    Raises
    ------
    InputError, CompositionError
        Options of another method; a plan that the method does not take.
    """
    if method == "auto":
        method = "exact" if not options and _within_reach(plan) else "monte-carlo"
    if options and method != "monte-carlo":
        raise InputError(
            f"predict: {', '.join(sorted(options))} given for method {method!r}, "
            "expected method 'monte-carlo'"
        )
    notes = _notes(plan)
    simulation = None
    if method == "exact":
        from probcalc.plan_exact import exact_laws

        laws: Any = exact_laws(plan)
    elif method == "bounds":
        from probcalc.plan_bounds import NAMES, bound_laws

        laws = bound_laws(plan)
        notes.append(f"quantiles lie between two laws: {NAMES}")
    elif method == "moments":
        from probcalc.plan_moments import moment_laws_of_plan

        laws = moment_laws_of_plan(plan)
        notes.append("laws are replaced by normal ones, maxima by Clark's formulas")
    else:
        from probcalc.montecarlo import QUANTITIES, simulate

        simulation = simulate(plan, **options)
        laws = tuple(getattr(simulation, name) for name in QUANTITIES)
        notes.append(
            f"simulated: {simulation.samples:,} samples, seed {simulation.seed}, ticks "
            f"of {simulation.tick:.3g} s"
        )
        if simulation.lost > 0.0:
            notes.append(
                "laws with a density are drawn uniformly within cells, which keeps "
                f"all but {simulation.lost:.2g} of their variance"
            )
    return Planned(laws, method, tuple(notes), simulation)


def _within_reach(plan: Plan) -> bool:
    """Whether the exact laws are found in little time."""
    from probcalc.plan_exact import setting_of
    from probcalc.seriesparallel import reduced

    if len(plan) > EXACT_NODES or not plan.draws.fresh or plan.account.shared:
        return False
    if any(e.coupled or plan.account.beyond(e) for e in plan.elements):
        return False
    reduction = reduced(plan)
    if not reduction.whole:
        return False
    try:
        setting_of(reduction)
    except CompositionError:
        return False
    return True


def _notes(plan: Plan) -> list[str]:
    notes = [f"draw groups: {plan.draws.sentence}"]
    for name, factor in sorted(plan.account.shared.items()):
        notes.append(f"{name} {factor.sentence}, one draw for the whole plan")
    held = [f"{device} {watts:g} W" for device, watts in plan.baselines.items()]
    shown = ", ".join(held[:4]) + (f" and {len(held) - 4} more" if held[4:] else "")
    notes.append(f"devices are held to the end at their static power: {shown}")
    conflicts = [e.name for e in plan.elements if e.calibration_conflict]
    if conflicts:
        notes.append(
            "runs with negative dynamic energy are kept as measured: "
            + ", ".join(dict.fromkeys(conflicts))
        )
    return notes
