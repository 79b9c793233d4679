"""What tables say of a run of certificates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from warpcert.certificates import Voted
from warpcert.paper.certifying import Certified
from warpcert.report.table import Cell

__all__ = ["ANGLES", "DECIBELS", "RADII", "accuracy_cells", "attacked_cells", "quarters"]

ANGLES, DECIBELS = (0, 10, 20, 30, 50), (0, 1, 2, 3, 4)
RADII = (("r > 0 px", 0.0), ("r > 1 px", 1.0), ("r > √2 px", 2**0.5), ("r > 2 px", 2.0))


def quarters(radii: Sequence[float]) -> str:
    """The 25, 50 and 75 per cent points; negative values, which stand for no radius, count as 0."""
    ordered = sorted(radii)
    points = (max(0.0, ordered[min(len(ordered) - 1, len(ordered) * k // 4)]) for k in (1, 2, 3))
    return ", ".join(f"{q:.3g}" for q in points)


def accuracy_cells(rows: Sequence[Certified]) -> dict[str, Cell]:
    """Shares of items that are answered correctly and certified up to each level, E, percentiles of r, time."""
    certificates = [r.certificate for r in rows]
    threat = certificates[0].threat
    t, top = threat.transform, threat.box.upper[0]
    cells: dict[str, Cell] = {"images": len(rows), "E": median(c.error.E for c in certificates)}
    cells["ρ"] = max(c.error.rho for c in certificates)
    radii = [_radius(r) for r in rows]
    if t.dim > 1:
        cells |= {name: fmean(r > level for r in radii) for name, level in RADII}
    else:
        for level in (v for v in {"dB": DECIBELS}.get(t.unit, ANGLES) if v <= t.surface(top) * (1 + 1e-9)):
            box = threat.box.scaled(min(1.0, t.internal(level) / top))
            share = fmean(r.certificate.label == r.label and r.certificate.covers(box) for r in rows)
            cells[f"±{level}{'' if t.unit == '°' else ' '}{t.unit}"] = share
    cells["r: 25, 50, 75 %"] = quarters(radii)
    analysis = [c.error.seconds for c in certificates]
    cells |= {"analysis, s": fmean(analysis), "seconds per image": fmean(c.seconds for c in certificates)}
    return cells | {"smoothing, s": fmean(c.seconds - s for c, s in zip(certificates, analysis, strict=True))}


def _radius(row: Certified) -> float:
    """The certified radius in surface units: of a wrong answer or none −1. Of one window the theorem's r, up to the
    farthest corner of Γ (E says nothing beyond it); of several the largest ±γ.
    """
    c = row.certificate
    if c.abstains or c.label != row.label:
        return -1.0
    if isinstance(c, Voted) and len(c.windows) == 1:
        r, corner = c.whitened_radius(c.windows[0]), math.hypot(*c.threat.box.upper)
        return -1.0 if r is None else c.threat.transform.surface(min(r * min(c.defence.sigma_param), corner))
    return -1.0 if c.reach is None else c.threat.transform.surface(c.reach.upper[0])


def attacked_cells(rows: Sequence[Certified]) -> dict[str, Cell]:
    """Share correct, share certified and correct, E of the windows, time of analysis and of smoothing."""
    certificates = [r.certificate for r in rows]
    analysed = [c for c in certificates if c.error.E > 0]
    return {
        "attacked images": len(rows),
        "g correct": fmean(r.answer == r.label for r in rows),
        "certified and correct": fmean(r.correct for r in rows),
        "E": median(c.error.E for c in analysed) if analysed else None,
        "ρ": max(c.error.rho for c in certificates),
        "excluded share of Γ": fmean(c.excluded or 0.0 for c in certificates),
        "analysis, s": fmean(c.error.seconds for c in certificates),
        "smoothing, s": fmean(c.seconds - c.error.seconds for c in certificates),
    }
