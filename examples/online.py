"""Answer about pictures that may have been attacked already: the originals are never seen.

Run it: python examples/online.py
"""

from __future__ import annotations

import tempfile
from importlib import resources
from pathlib import Path

import torch

import warpcert as wc
from warpcert.app.cli import main as warpcert
from warpcert.learn import data
from warpcert.networks import resnet as models

GAMMA = 1  # the attacker turns by up to ±1°
CALIBRATE = "bound --data mnist500 --start 100 --count 20 --E 0.17 --rho 0.03 --alpha 0.05"


def main() -> list[wc.Certificate]:
    weights = resources.files("warpcert") / "assets" / "mnist-rotation.safetensors"
    model = models.load_weights(str(weights))[0]
    digits, threat = data.load("mnist500"), wc.Threat.of("rotation", GAMMA)

    # Once: how large the interpolation error is on such data. `warpcert bound` writes it to a file.
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calibration.json"
        if warpcert([*CALIBRATE.split(), "--gamma", str(GAMMA), "--out", str(path)]) != 0:
            raise SystemExit("the calibration failed")
        calibration = wc.Calibration.read(path)

    # From then on: only x' is shown. The draws are fresh and secret, so that nobody can fit x' to them.
    certificates = []
    for index in range(2):
        gamma = threat.box.uniform(1, torch.Generator().manual_seed(index))
        x_attacked = threat.attacked(digits.image(index), gamma)[0]
        certificate = wc.dist_spt_d_online(model, x_attacked, calibration, wc.Sampling(n=4000))
        print(f"turned by {threat.transform.to_text(float(gamma))}, is {int(digits.labels[index])}: {certificate}")
        # Without a calibration: for every original that can have led here, at the price of an analysis of x'.
        # The interval inverse is the quick one; the default, the Lagrangian inverse, is tighter and slower.
        few = wc.Sampling(n=4000)
        alone = wc.indiv_spt(
            model, x_attacked, calibration.defence, threat, few, inverse=wc.IntervalInverse(), betas=150
        )
        print(f"    {alone}")
        certificates += [certificate, alone]
    return certificates


if __name__ == "__main__":
    main()
