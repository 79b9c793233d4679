"""What a run was asked for, in words: each setting of its configuration under the name and in the units of the
surface.
"""

from __future__ import annotations

from typing import Any

from warpcert.threat import Threat

__all__ = ["differences", "in_words"]

NAMES = {
    "data": "the data",
    "order": "the order",
    "indices": "the first picture",
    "classifier": "the classifier",
    "method": "the method",
    "alpha": "α",
    "n0": "n₀",
    "two_class": "two-class",
    "betas": "the number of β's",
    "guessed": "guess-then-test",
    "time_limit": "the time limit",
    "centres": "the centre pictures",
    "eight_bit": "the attacker starts from 8 bits",
    "right_only": "wrong answers proved on little of the range",
}
PLACE = ("model", "shape")  # where it was found: the fingerprint tells what it is
FREE = (*PLACE, "device")  # a run may go on on another device
LONG = 13  # characters of a digest that are shown


def in_words(config: dict[str, Any]) -> dict[str, str]:
    """Name and value of every setting. How many pictures there are is none of them: a run can be longer."""
    words: dict[str, str] = {}
    for key, value in config.items():
        if key == "threat":
            words |= Threat.from_dict(value).in_words()
        elif key == "settings":
            words |= {NAMES.get(k, k): _text(v) for k, v in value.items()}
        elif key == "attack":
            words["the attack"] = f"{value['name']} with k = {value['k']}"
        elif key == "indices":
            words[NAMES[key]] = str(value[0])
        elif key == "classifier":
            words[NAMES[key]] = f"{value['name']} {value['fingerprint'][:12]}…".strip()
        elif key not in PLACE:
            words[NAMES.get(key, key)] = _text(value)
    return words


def differences(there: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The settings in which two configurations differ, each as "the range is ±50° there and ±30° now"; none if they
    are equal to the last digit.
    """
    a, b = _compared(there), _compared(now)
    keys = [k for k in a | b if a.get(k) != b.get(k)]
    if not keys:
        return []
    words, other = in_words(there), in_words(now)
    found = [
        f"{name} is {words.get(name, 'not set')} there and {other.get(name, 'not set')} now"
        for name in words | other
        if words.get(name) != other.get(name)
    ]
    return found or [f"the {k} differs in digits that are not shown" for k in keys]


def _compared(config: dict[str, Any]) -> dict[str, Any]:
    """What must agree for two configurations to be of one run."""
    kept = {k: v for k, v in config.items() if k not in FREE}
    if "indices" in kept:
        kept["indices"] = kept["indices"][0]
    if "settings" in kept:  # one that is left open, or off, may be of a later version
        kept["settings"] = {k: v for k, v in kept["settings"].items() if v is not None and v is not False}
    if "classifier" in kept:
        kept["classifier"] = kept["classifier"]["fingerprint"]
    return kept


def _text(value: Any) -> str:
    if value is None:
        return "left open"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, str) and len(value) > 2 * LONG and " " not in value:
        return f"{value[: LONG - 1]}…"
    return f"{value:g}" if isinstance(value, float) else str(value)
