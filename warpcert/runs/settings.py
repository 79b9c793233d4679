"""What a run was asked for, in words: each setting of its configuration under the name and in the units of the
surface.
"""

from __future__ import annotations

from typing import Any

from warpcert.classifier.defence import Defence
from warpcert.threat import Threat

__all__ = ["differences", "in_words"]

NAMES = {
    "indices": "the first image",
    "alpha": "α",
    "n0": "n₀",
    "two_class": "two-class",
    "betas": "the number of β's",
    "guessed": "guess-then-test",
    "limit": "the time limit",
    "rounded": "rounding of the centre images",
}


def in_words(config: dict[str, Any]) -> dict[str, str]:
    """Name and value of every setting. How many images there are is none of them: a run can be longer."""
    words: dict[str, str] = {}
    for key, value in config.items():
        if key == "threat":
            words |= _threat(Threat.from_dict(value))
        elif key == "defence":
            words |= _defence(Defence.from_dict(value))
        elif key == "sampling":
            words |= {NAMES.get(k, k): _text(v) for k, v in value.items() if k != "seed"}  # the run has its own
        elif key == "indices":
            words[NAMES[key]] = str(value[0])
        else:
            short = isinstance(value, str) and key in ("model", "calibration")
            words[NAMES.get(key, key)] = f"{value[:12]}…" if short and len(value) > 13 else _text(value)
    return words


def differences(there: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The settings in which two configurations differ, each as "Γ is ±50° there and ±30° now"; none if they are equal
    to the last digit.
    """
    a, b = ({k: v[0] if k == "indices" else v for k, v in config.items()} for config in (there, now))
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


def _text(value: Any) -> str:
    if value is None:
        return "left open"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _threat(threat: Threat) -> dict[str, str]:
    return {
        "the transformation": threat.transform.name,
        "Γ": threat.transform.span(threat.box),
        "the attacker's interpolation": threat.interpolation,
        "the attacker's 8-bit rounding": _text(threat.quantized),
    }


def _defence(defence: Defence) -> dict[str, str]:
    p = defence.preprocess
    return {
        "σ of the parameter": " × ".join(defence.transform.to_text(s) for s in defence.sigma_param),
        "σ of the pixel noise": _text(defence.sigma_noise),
        "the defender's interpolation": defence.interpolation,
        "the reference of originals": defence.known.interpolation,
        "the vignette": f"{p.vignette} with margin {p.margin:g} px",
        "the blur": f"σ {p.blur_sigma:g} px, size {p.blur_size}",
    }
