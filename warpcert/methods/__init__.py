"""The named methods. `METHODS` holds all of them; `certify` chooses one and calls it."""

from __future__ import annotations

from warpcert.methods.base import Interrupted, Method
from warpcert.methods.cover import Cover
from warpcert.methods.dist_d import DistD, Online
from warpcert.methods.dist_x import DistX
from warpcert.methods.exact import Exact
from warpcert.methods.heuristic import Base
from warpcert.methods.indiv import Indiv
from warpcert.methods.outlook.forecast import Forecast
from warpcert.methods.registry import (
    METHODS,
    certify,
    certify_with,
    chosen,
    foresee,
    get,
    go_on,
    part,
    refusal,
    refuse_other,
    suitable,
    threat_for,
)

__all__ = [
    "METHODS",
    "Base",
    "Cover",
    "DistD",
    "DistX",
    "Exact",
    "Forecast",
    "Indiv",
    "Interrupted",
    "Method",
    "Online",
    "certify",
    "certify_with",
    "chosen",
    "foresee",
    "get",
    "go_on",
    "part",
    "refusal",
    "refuse_other",
    "suitable",
    "threat_for",
]
