"""Answer about pictures that may have been attacked already: the originals are never seen.

Run it from the root of the repository: python examples/online.py
"""

from __future__ import annotations

import torch

import warpcert as wc
from warpcert.learn import data

DEGREES = 1  # the attacker turns by up to ±1°
PICTURES = 20  # of the calibration; more show a larger share


def main() -> list[wc.Certificate]:
    net, digits = wc.load("mnist-rotation"), data.load("mnist500")
    threat = wc.Threat.rotation(degrees=DEGREES)

    # Once: how large the interpolation error is on such data.
    seen = [digits.image(100 + i) for i in range(PICTURES)]
    calibration = wc.calibrate(net, seen, threat, E=0.17, rho=0.03, alpha=0.05)
    print(f"E = {calibration.E:g} for a share of at least {calibration.q_E:.2f}")

    # From then on only x' is shown. Draws are fresh and secret, so that nobody can fit x' to them.
    certificates = []
    for index in range(2):
        gamma = threat.box.uniform(1, torch.Generator().manual_seed(index))
        received = threat.attacked(digits.image(index), gamma)[0]
        certificate = net.certify(received, threat, method="dist-d-online", calibration=calibration, n=4000)
        print(f"turned by {threat.transform.to_text(float(gamma))}, is {int(digits.labels[index])}: {certificate}")
        # Without a calibration: for every original that can have led here, at the price of an analysis of x'.
        # The interval inverse is quick; the default, the Lagrangian inverse, is tighter and slower.
        alone = net.certify(received, threat, method="indiv", inverse="interval", betas=150, n=4000)
        print(f"    {alone}")
        certificates += [certificate, alone]
    return certificates


if __name__ == "__main__":
    main()
