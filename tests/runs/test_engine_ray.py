"""The ray engine on a cluster of two machines on this one. About half a minute, most of it ray's own start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from certificate_samples import voted
from engine_jobs import Fragile, Refusing, machines, seen
from test_engine import certify, job, tasks

import warpcert as wc
from warpcert import methods
from warpcert.app.cli import main
from warpcert.runs.engine import here, on_ray, processes
from warpcert.runs.job import AttackPlan

ray = pytest.importorskip("ray", reason="the ray engine is an extra: pip install 'warpcert[ray]'")
pytestmark = pytest.mark.filterwarnings("ignore:::ray", "ignore::ResourceWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield made
    ray.shutdown()
    made.shutdown()


def test_ray_gives_the_same_certificates(tmp_path: Path, cluster: Any) -> None:
    j = job()
    there = certify(tmp_path / "ray", j, on_ray(j.open, 2, cluster.address))
    assert there == certify(tmp_path / "here", j, here(j.open()))


def test_a_lost_machine_costs_only_its_images(tmp_path: Path, cluster: Any) -> None:
    second, log, count = cluster.add_node(num_cpus=1), tmp_path / "log", 8
    fragile = Fragile(voted(), log, weak=6, deaths=1, seconds=0.5, machines=2)
    answers = []
    for answer in on_ray(fragile, None, cluster.address)(tasks(count)):
        answers.append(answer)
        if len(answers) == 1:
            cluster.remove_node(second, allow_graceful=False)
    assert len(machines(log)) == 2, "both machines were at work"
    assert sorted(i for i, _ in answers) == list(range(count))
    assert all(c.seed == i for i, (c, _) in answers)
    again = len(seen(log)) - count
    assert 1 <= again <= 1 + 1, "the dead worker's image, and at most the one that the lost machine was at"


def test_errors_of_ray_workers_come_home(cluster: Any) -> None:
    with pytest.raises(ValueError, match=r"^there is no model$"):
        list(on_ray(Refusing(ValueError("there is no model")), 1, cluster.address)(tasks(1)))
    with pytest.raises(ValueError, match="offers a GPU"):
        list(on_ray(Refusing(ValueError("there is no model")), 1, cluster.address, gpu=True)(tasks(1)))


def test_ray_settings_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--address", "there:1", "--out", str(tmp_path)]) == 2
    assert "--engine ray" in capsys.readouterr().err
    nobody = ["--engine", "ray", "--address", "127.0.0.1:9"]
    assert main(["certify", *nobody, "--out", str(tmp_path)]) == 2
    assert "no ray cluster answers at 127.0.0.1:9" in capsys.readouterr().err
    with pytest.raises(ValueError, match="at least 1"):
        on_ray(Refusing(ValueError()), 0, None)


def test_unseen_originals_go_on_in_another_engine(tmp_path: Path, cluster: Any) -> None:
    """`indiv` with the tight inverse: begun here, continued by processes and then by ray, as if by one."""
    dist_x = job()
    classifier = dist_x.source.open(torch.device("cpu"))
    method = methods.chosen(classifier, "indiv", n=300, betas=40, windows=1, alpha=0.2)
    j = replace(dist_x, threat=wc.Threat.rotation(degrees=0.3), method=method, attack=AttackPlan(k=3))
    whole = certify(tmp_path / "whole", j, here(j.open()), 3)
    engines = (here(j.open()), processes(j.open, 2), on_ray(j.open, 1, cluster.address))
    parts = [certify(tmp_path / "parts", j, engine, count) for count, engine in enumerate(engines, 1)]
    assert parts[-1] == whole and any(c["error"]["E"] > 0 for c in whole.values())
