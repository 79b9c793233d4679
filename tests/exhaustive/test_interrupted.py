"""Ctrl-C: what was proved by then is a certificate, and the same picture goes on from there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_outwards import missed, noise
from torch import Tensor, nn

from warpcert import certificates, methods
from warpcert.certificates import Exhausted
from warpcert.classifier import Plain
from warpcert.exhaustive.judge import Judge
from warpcert.runs.job import Held, Job
from warpcert.runs.runner import run
from warpcert.runs.store import Store, read_records
from warpcert.threat import Threat


class Stopped(nn.Module):
    """Class 0; remembers what it was asked about, and is interrupted after so many batches."""

    def __init__(self, after: float) -> None:
        super().__init__()
        self.left, self.seen = after, set[bytes]()

    def forward(self, z: Tensor) -> Tensor:
        if self.left <= 0:
            self.left = np.inf
            raise KeyboardInterrupt
        self.left -= 1
        self.seen |= {row.tobytes() for row in (255 * z).round().to(torch.uint8).flatten(1).numpy()}
        return torch.tensor([1.0, 0.0]).expand(len(z), 2)


@pytest.mark.parametrize("key", ["rotation", "shear"])
def test_an_interrupted_picture_is_proved_as_far_as_told(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = noise(2)
    threat, probe = Threat.of(key, 30), Judge.probe
    monkeypatch.setattr(Judge, "probe", lambda judge, count: (probe(judge, count), net.seen.clear())[0])
    whole, held = None, list[float]()
    for after in (2, 6, 9, 12, 16, 20, 24, np.inf):
        net = Stopped(after)
        f = Plain(net.eval())
        made = f.certify(x.float() / 255, threat, batch=64)
        assert isinstance(made, Exhausted) and certificates.read(made.to_dict()) == made
        if made.found is None:
            assert after < 17
            continue
        assert missed(net, x, threat, made.found.held) == 0  # type: ignore[arg-type]
        held.append(made.found.held)
        if after == np.inf:
            whole = made
            continue
        assert made.found.held < 1 and "interrupted" in made.reason and len(made.reason) < 50
        before = set(net.seen)
        rest = methods.go_on(methods.chosen(f, batch=64), made, f, x.float() / 255, threat)
        assert isinstance(rest, Exhausted) and rest.found is not None and rest.found.held == 1
        net.seen |= before
        assert missed(net, x, threat, 1.0) == 0 and certificates.read(rest.to_dict()) == rest
        assert rest.passes == rest.found.images
        with pytest.raises(ValueError, match="nothing to go on from"):
            methods.go_on(methods.chosen(f), made, f, 1 - x.float() / 255, threat)
    assert whole is not None and held == sorted(held) and len(set(held)) > 2


def test_who_does_not_tell_the_tolerance_starts_anew() -> None:
    x, net, threat = noise(2).float() / 255, Stopped(20), Threat.rotation(30)
    f = Plain(net.eval())
    made = f.certify(x, threat, batch=64)
    assert isinstance(made, Exhausted) and made.found is not None and made.found.held < 1
    silent = replace(made, found=replace(made.found, tolerance=None))
    rest, anew = (methods.go_on(methods.chosen(f, batch=64), c, f, x, threat) for c in (made, silent))
    assert isinstance(rest, Exhausted) and isinstance(anew, Exhausted) and rest.found and anew.found
    assert rest.found.held == anew.found.held == 1
    assert anew.passes == f.certify(x, threat, batch=64).passes != rest.passes


def test_a_run_goes_on_within_a_picture(tmp_path: Path) -> None:
    pictures = [noise(seed).float() / 255 for seed in (1, 2, 3)]
    net, threat = Stopped(11), Threat.rotation(20)
    f = Plain(net.eval())
    job = Job(Held(f), threat, methods.chosen(f, batch=256))
    config = job.describe(f, data="noise", indices=range(3), seed=0)

    def certify() -> int:
        from warpcert.runs.engine import here

        tasks = (job.task(i, x, 0, 0) for i, x in enumerate(pictures))
        with Store(tmp_path / "run", config) as store:
            return len(list(run(store, tasks, here(job.certifier(f)))))

    with pytest.raises(KeyboardInterrupt):
        certify()
    kept = list((tmp_path / "run").glob("unfinished-*.json"))
    done = len(list(read_records(tmp_path / "run")))
    assert len(kept) == 1 and done < 3
    assert certify() == 3 - done and not list((tmp_path / "run").glob("unfinished-*"))
    for record in read_records(tmp_path / "run"):
        assert record["certificate"]["found"]["held"] == 1


@pytest.mark.parametrize("what", ["picture", "weights", "slack", "threat", "tolerance", "method", "nothing"])
def test_nothing_is_joined_to_a_part_about_something_else(what: str, tmp_path: Path) -> None:
    """A part that was kept, taken up by a run about another picture, classifier or threat."""
    x, threat, torch_net = noise(2).float() / 255, Threat.rotation(30), Stopped(20)
    f = Plain(torch_net.eval())
    made = f.certify(x, threat, batch=64)
    assert isinstance(made, Exhausted) and made.found is not None and made.found.held < 1
    net = Stopped(np.inf)
    if what == "weights":
        net.register_buffer("weight", torch.zeros(1))
    g = Plain(net.eval(), slack=1e-3 if what == "slack" else None)
    against = {"threat": Threat.rotation(20), "tolerance": Threat.rotation(30, tolerance=1e-9)}.get(what, threat)
    made = replace(made, method="cover") if what == "method" else made
    job = Job(Held(g), against, methods.chosen(g, batch=64))
    task = replace(job.task(0, 1 - x if what == "picture" else x, 0, 0), known=made)
    if what == "nothing":
        assert job.certifier(g)(task)[0].reach == threat.box
        return
    with pytest.raises(ValueError, match="nothing to go on from"):
        job.certifier(g)(task)


def test_a_folder_with_a_part_of_other_settings_is_refused(tmp_path: Path) -> None:
    """Although it holds no record yet: what is proved in it would be of no use."""
    x, f = noise(2).float() / 255, Plain(Stopped(20).eval())
    made = f.certify(x, Threat.rotation(30), batch=64)

    def config(degrees: float) -> dict[str, Any]:
        job = Job(Held(f), Threat.rotation(degrees), methods.chosen(f))
        return job.describe(f, data="noise", indices=range(1), seed=0)

    with Store(tmp_path, config(30)) as store:
        store.keep(0, made)
    with pytest.raises(ValueError, match="±30° there and ±20° now"):
        Store(tmp_path, config(20))
    with Store(tmp_path, config(30)) as store:
        assert store.unfinished(0) == made
    (tmp_path / "unfinished-0.json").write_text("{}")
    with Store(tmp_path, config(30)) as store, pytest.raises(ValueError, match=r"unfinished-0.json: .* starts anew"):
        store.unfinished(0)
