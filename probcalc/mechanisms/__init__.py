"""Interaction mechanisms: how one execution changes what another one costs."""

from probcalc.mechanisms.cache import cache
from probcalc.mechanisms.contention import Resource, contention
from probcalc.mechanisms.power_delivery import power_delivery
from probcalc.mechanisms.registry import (
    Effect,
    Load,
    Mechanism,
    Mechanisms,
    State,
)
from probcalc.mechanisms.thermal import Thermal, thermal

__all__ = [
    "Effect",
    "Load",
    "Mechanism",
    "Mechanisms",
    "Resource",
    "State",
    "Thermal",
    "cache",
    "contention",
    "power_delivery",
    "thermal",
]
