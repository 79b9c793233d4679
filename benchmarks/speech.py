"""The training set of recipes/speech-volume, from a folder of Speech Commands (Warden 2018, CC BY 4.0).

`python -m benchmarks.speech FOLDER OUT.npz`: FOLDER has a folder of .wav files for each word. Speakers are split as the
dataset's README says, by a hash of their name. None of the testing split is taken: the 200 test sounds of the
experiments are of its speakers. The last HELD sounds, for validation, are of speakers of the validation split of whom
nothing else is taken.
"""

from __future__ import annotations

import hashlib
import sys
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
RATE, HELD = 16_000, 1000


def speaker(path: Path) -> str:
    return path.name.partition("_nohash_")[0]


def place(name: str) -> float:
    """Where a speaker stands in the dataset's splits, in per cent: validation below 10, testing below 20."""
    most = 2**27 - 1
    return int(hashlib.sha1(name.encode()).hexdigest(), 16) % (most + 1) * 100 / most


def sound(path: Path) -> NDArray[np.int16]:
    """One second of 16-bit samples, silence at the end of shorter ones."""
    with wave.open(str(path)) as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (RATE, 2, 1):
            raise ValueError(f"{path} is not 16-bit mono at {RATE} Hz")
        read = np.frombuffer(file.readframes(RATE), dtype="<i2")
    return np.pad(read, (0, RATE - len(read)))


def gather(folder: Path, out: Path) -> None:
    found = [path for word in WORDS for path in sorted((folder / word).glob("*_nohash_*.wav"))]
    order = np.random.default_rng(0).permutation(len(found))
    used = [found[i] for i in order if not 10 <= place(speaker(found[i])) < 20]
    held = [path for path in used if place(speaker(path)) < 10][:HELD]
    apart = {speaker(path) for path in held}
    paths = [path for path in used if speaker(path) not in apart] + held
    labels = np.array([WORDS.index(path.parent.name) for path in paths], dtype=np.uint8)
    np.savez(out, x_train=np.stack([sound(path) for path in paths]), y_train=labels, words=np.array(WORDS))
    speakers = len({speaker(path) for path in paths})
    print(f"{len(paths)} sounds of {speakers} speakers in {out}, the last {len(held)} of them for validation")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(str(__doc__))
    gather(Path(sys.argv[1]), Path(sys.argv[2]))
