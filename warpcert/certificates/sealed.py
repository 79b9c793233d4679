"""Records with a digest of their content, and comparison of what was stored with what was computed again."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from torch import Tensor

__all__ = ["parsed", "picture_digest", "same", "seal", "unseal"]


def picture_digest(x: Tensor) -> str:
    """SHA-256 of a picture's shape and its float32 values: by it a certificate names the picture that it is about."""
    digest = hashlib.sha256(str(list(x.shape)).encode())
    digest.update(x.detach().cpu().float().contiguous().numpy().tobytes())
    return digest.hexdigest()


def parsed(text: str | bytes) -> Any:
    """JSON, read in the one way in which people read it; a ValueError for names that are there twice, of which programs
    would silently take one, and for what is nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name in found if sum(name == n for n, _ in pairs) > 1)
        raise ValueError(f"{twice!r} is there twice")
    return found


def same(a: Any, b: Any) -> bool:
    """Equal, floats up to rounding."""
    if isinstance(a, float) and isinstance(b, float | int):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def seal(body: dict[str, Any]) -> dict[str, Any]:
    """The dictionary with a digest of its content: shows accidental edits, not forgery."""
    return body | {"digest": _digest(body)}


def unseal(sealed: dict[str, Any]) -> dict[str, Any]:
    """The content, if the digest matches; a ValueError otherwise."""
    body = {k: v for k, v in sealed.items() if k != "digest"}
    if sealed.get("digest") != _digest(body):
        raise ValueError("the digest does not match: a field was edited")
    return body
