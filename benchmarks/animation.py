"""The README's picture: a digit turns, and its dial shows how far the certificate reaches.

    python -m benchmarks.animation        certifies the digit and writes docs/img/dial.gif

Every frame is the picture that an attacker would hand over at that angle, and shows what the classifier answers to it.
"""

from __future__ import annotations

import math
from pathlib import Path

import matplotlib
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

import warpcert as wc
from warpcert.learn import data

PAGE = Path(__file__).parents[1] / "docs" / "img" / "dial.gif"
DIGIT = 5  # a 7 that is certified on a part of the range
FRAMES, PAUSE = 72, 70  # pauses in milliseconds
SIDE, WIDTH, HEIGHT, SCALE = 224, 640, 288, 2  # drawn SCALE times larger, then reduced
CENTRE, RADIUS = (440, 176), 116
INK, PALE, GREEN, RED = "#1f2933", "#cbd2d9", "#188a5a", "#b3362b"


def angles() -> list[float]:
    """There and back over ±50°, in degrees: slower at the ends, as a pendulum is."""
    return [50 * math.sin(2 * math.pi * i / FRAMES) for i in range(FRAMES)]


def font(size: int, bold: bool = False) -> ImageFont.FreeTypeFont:
    name = f"DejaVuSans{'-Bold' if bold else ''}.ttf"
    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name), size * SCALE)


def point(degrees: float, radius: float) -> tuple[float, float]:
    """Where an angle stands on the dial: 0 is above, counter-clockwise to the left, as the picture turns."""
    turn = math.radians(degrees)
    return (CENTRE[0] - radius * math.sin(turn)) * SCALE, (CENTRE[1] - radius * math.cos(turn)) * SCALE


def dial(draw: ImageDraw.ImageDraw, certified: tuple[float, float], limit: float, now: float) -> None:
    box = [(c + s * RADIUS) * SCALE for s in (-1, 1) for c in CENTRE]
    for (low, high), colour, width in (((-limit, limit), PALE, 8), (certified, GREEN, 14)):
        draw.arc(box, -90 - high, -90 - low, fill=colour, width=width * SCALE)
    for mark in (-limit, 0, limit):
        draw.text(
            point(mark, RADIUS + 22), f"{mark:+.0f}°".replace("+0", "0").replace("-", "−"), INK, font(13), anchor="mm"
        )
    inside = certified[0] <= now <= certified[1]
    draw.line([point(now, 18), point(now, RADIUS - 16)], fill=GREEN if inside else RED, width=4 * SCALE)


def frame(picture: Tensor, answer: int, now: float, certificate: wc.Certificate) -> Image.Image:
    """One frame: the turned picture on the left; dial and answer on the right."""
    image = Image.new("RGB", (WIDTH * SCALE, HEIGHT * SCALE), "white")
    pixels = Image.fromarray((picture[0] * 255).round().to(torch.uint8).numpy())
    image.paste(pixels.resize((SIDE * SCALE, SIDE * SCALE), Image.Resampling.NEAREST), (32 * SCALE, 32 * SCALE))
    draw, certified = ImageDraw.Draw(image), certificate.range
    assert certified is not None and isinstance(certified[0], float)
    limit = certificate.threat.transform.surface(certificate.threat.box.upper[0])
    dial(draw, certified, limit, now)
    x, kept = CENTRE[0] * SCALE, answer == certificate.label
    draw.text((x, 200 * SCALE), f"answer: {answer}", GREEN if kept else RED, font(26, bold=True), anchor="mm")
    draw.text((x, 238 * SCALE), f"proved for every angle within {certificate.span}", INK, font(14), anchor="mm")
    beyond = "" if certified[0] <= now <= certified[1] else ": beyond what is proved"
    draw.text((x, 262 * SCALE), f"turned by {now:.0f}°{beyond}".replace("-", "−"), INK, font(14), anchor="mm")
    return image.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def frames(index: int = DIGIT) -> tuple[wc.Certificate, list[tuple[float, int]], list[Image.Image]]:
    """The certificate of a bundled digit, what the classifier answers at every angle shown, and the frames."""
    net, x = wc.load("mnist-rotation-exact"), data.load("mnist500").image(index)
    certificate = net.certify(x)
    turned = certificate.threat.attacked(x, torch.tensor([[math.radians(a)] for a in angles()]))
    answers = net.predict(turned)
    assert isinstance(answers, list)
    shown = list(zip(angles(), answers, strict=True))
    pictures = zip(turned, shown, strict=True)
    return certificate, shown, [frame(picture, answer, now, certificate) for picture, (now, answer) in pictures]


def main() -> None:
    certificate, _, images = frames()
    print(certificate)
    both = Image.new("RGB", (WIDTH, 2 * HEIGHT))  # colours of a certified frame and of one beyond
    both.paste(images[0], (0, 0))
    both.paste(images[3 * FRAMES // 4], (0, HEIGHT))
    few = both.quantize(64, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    reduced = [image.quantize(palette=few, dither=Image.Dither.NONE) for image in images]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    reduced[0].save(PAGE, save_all=True, append_images=reduced[1:], duration=PAUSE, loop=0, optimize=True)
    print(f"wrote {PAGE.name}: {len(images)} frames, {PAGE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
