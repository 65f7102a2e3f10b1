"""Power delivery: droops from steps of the draw (Table 1, App. A).

The state is the draw beyond the baseline to which regulators have settled; it decays to
the draw of what runs, within nanoseconds to microseconds. A run that draws more than
that is held up, and costs more, in proportion to the step.
"""

from __future__ import annotations

import numpy as np

from probcalc.context import StateVariable, number
from probcalc.mechanisms.registry import Effect, Load, Mechanism, State, share

__all__ = ["SETTLED", "power_delivery"]

SETTLED = "settled draw"


def power_delivery(
    *,
    time_constant: float,
    time_per_watt: float = 0.0,
    energy_per_watt: float = 0.0,
    name: str = "power delivery",
) -> Mechanism:
    """Return the power-delivery mechanism; in the null context the device was idle.

    Parameters
    ----------
    time_constant : float
        Of the decay to the draw of what runs, s.
    time_per_watt, energy_per_watt : float
        What each watt of a step upwards costs beyond a step of none, s/W and J/W. As
        the null context is idle, a run from it has its whole step in its signature,
        and one that starts from a settled draw saves that part.

    Raises
    ------
    InputError
        A time constant that is not positive, other values that are negative.
    """
    where = f"mechanism {name!r}"
    tau = number(time_constant, f"{where}, time constant", "s", open=True)
    time = number(time_per_watt, f"{where}, time per watt", "s/W")
    joules = number(energy_per_watt, f"{where}, energy per watt", "J/W")

    def run(state: State, load: Load) -> State:
        draw = load.power
        return {SETTLED: draw + (state[SETTLED] - draw) * np.exp(-load.duration / tau)}

    def effect(state: State, load: Load) -> Effect:
        step = np.maximum(load.power - state[SETTLED], 0.0)
        spared = (load.power - step) * share(load.trace, name)
        return Effect(time=-time * spared, energy=-joules * spared)

    return Mechanism(
        name=name,
        cause="voltage droops when the draw steps up",
        timescale=f"{tau:g} s",
        protocol="power at high resolution about the boundaries of runs",
        variables=(StateVariable(SETTLED, "W", lower=0.0),),
        run=run,
        effect=effect,
        parameters={"time_constant": tau},
    )
