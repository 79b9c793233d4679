"""The report: what is in it follows from the folders, and nothing in it comes from elsewhere."""

from __future__ import annotations

import base64
import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image

import warpcert as wc
from warpcert.app.cli import main
from warpcert.certificates.sealed import seal, unseal
from warpcert.learn import data
from warpcert.report import html
from warpcert.report.cards import card, possible
from warpcert.report.results import find
from warpcert.report.words import deploy, plain_words, settings
from warpcert.runs import album
from warpcert.runs.store import pack, read_records
from warpcert.runs.summary import accuracy_curve, held, parse
from warpcert.threat import Threat


def test_the_page_says_what_the_folders_say(results: Path, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for folder in ("dist-x", "exact", "_a & <b> $x$"):
        for row in parse(list(read_records(results / folder))):
            sentence = str(row.certificate).replace("'", "&#39;")
            assert sentence in text
    assert "0.1235" in text and text.count("smaller on purpose") == 1
    beside = re.search(r'<table class="beside">.*?</table>', text, re.S)
    assert beside and re.search(
        r"share.*<small>Table 1.*</small> 0\.9.*0\.1235.*−0\.777.*smaller on purpose", beside[0], re.S
    )
    assert "quick: fewer images" in text and "warpcert paper violations --quick" in text


def test_nothing_comes_from_elsewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    sources = re.findall(r'(?:src|href|xlink:href)="([^"]*)"', text)
    assert len(sources) > 10 and all(s.startswith(("data:", "#")) for s in sources)
    assert not re.search(r"@import|url\((?!#)", text)
    assert len(page.read_bytes()) < html.LARGEST


def test_strings_are_text(page: Path, evil: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert evil not in text and text.count("&lt;script&gt;") >= 4
    assert text.count("<script>") == 1
    assert "<b> $x$" not in text


def test_drawings_are_well_formed_and_ids_are_their_own(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    drawings = re.findall(r"<svg .*?</svg>", text, re.S)
    assert len(drawings) > 10
    for drawing in drawings:
        tree = ElementTree.fromstring(drawing)
        assert not re.search(r"#[0-9a-f]{3,6}|rgb\(", re.sub(r'"data:[^"]*"', "", drawing))  # colours are the page's
        assert tree.attrib.get("aria-label") or tree.attrib["aria-hidden"] == "true"
    assert sum("plot" in drawing[:30] for drawing in drawings) >= 5
    ids = re.findall(r' id="([^"]*)"', text)
    assert ids and len(ids) == len(set(ids))


def test_a_run_keeps_its_pictures(results: Path) -> None:
    kept = album.read(results / "dist-x")
    assert kept is not None and kept.classes == tuple("0123456789")
    place = kept.place(2)
    assert place is not None and kept.place(77) is None
    assert torch.equal(kept.tensor(kept.x, place), data.load("mnist500").image(2))
    (results / "dist-x" / "broken").mkdir(exist_ok=True)
    (results / "dist-x" / "broken" / album.PICTURES).write_bytes(b"no pictures")
    with pytest.raises(ValueError, match="does not hold the pictures"):
        album.read(results / "dist-x" / "broken")


def test_pictures_of_another_order_are_not_shown(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "dist-x", tmp_path / "run", ignore=shutil.ignore_patterns(album.PICTURES))
    assert find([tmp_path]).runs[0].pictures is not None  # the bundled digits, labels compared
    config = tmp_path / "run" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"order": "shuffled"}))
    assert find([tmp_path]).runs[0].pictures is None


def test_attacked_pictures_are_kept_as_they_were(tmp_path: Path) -> None:
    """And only where they differ from the originals."""
    digits, threat = data.load("mnist500"), Threat.of("rotation", 10)
    gamma = torch.tensor([[0.1]], dtype=torch.float64)
    album.keep(tmp_path, digits, [4, 9], lambda i: threat.attacked(digits.image(i), gamma)[0])
    kept = album.read(tmp_path)
    assert kept is not None and kept.attacked is not None
    assert torch.equal(kept.tensor(kept.attacked, 1), threat.attacked(digits.image(9), gamma)[0])
    album.keep(tmp_path, digits, [4, 8], digits.image)
    plain = album.read(tmp_path)
    assert plain is not None and plain.attacked is None and plain.index.tolist() == [4, 8]


def test_pictures_that_are_not_8_bit_are_kept_as_they_are(tmp_path: Path) -> None:
    x = torch.rand(2, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    dataset = data.Dataset("real", x, torch.tensor([0, 1]), ("a", "b"))
    album.keep(tmp_path, dataset, [1], lambda i: dataset.image(i) / 3)
    kept = album.read(tmp_path)
    assert kept is not None and kept.attacked is not None
    assert torch.equal(kept.tensor(kept.x, 0), x[1]) and torch.equal(kept.tensor(kept.attacked, 0), x[1] / 3)


def constant(z: torch.Tensor) -> torch.Tensor:
    """A network that has made up its mind."""
    return torch.tensor([[9.0, 0.0]]).expand(len(z), 2)


def test_sound_is_drawn_as_a_wave(tmp_path: Path) -> None:
    """Volume: no picture, but the signal, what the attacker makes of it, and the certified range."""
    sound = (torch.sin(torch.arange(800) / 9.0) * 9000).to(torch.int16).repeat(2, 1, 1)
    dataset = data.Dataset("tones", sound, torch.tensor([0, 1]), ("low <i>", "high"))
    net = wc.Smoothed(constant, noise=0.1, over={"volume": 3})
    wc.certify_all(net, dataset, tmp_path, Threat.volume(2), method="base", n=200)
    found = find([tmp_path])
    shown = card(found.runs[0], found.runs[0].rows[0], deep=True).shown
    assert [s.caption for s in shown] == ["certified range", "sound", "volume change by 2 dB"]
    assert all("<polygon" in s.drawing for s in shown[1:])
    page = html.render(found)
    assert "low &lt;i&gt;" in page and "low <i>" not in page and "within ±2 dB" in page
    assert "For 1 of 2 sounds from tones" in page


def test_attacked_runs_show_what_was_attacked(tmp_path: Path) -> None:
    """indiv: the original, the attacked picture by the recorded γ, and what was answered there."""
    digits = data.load("mnist500").part(0, 2)
    net = wc.load("mnist-rotation-individual")
    wc.certify_all(net, digits, tmp_path, Threat.rotation(2), n=200, betas=30, inverse="interval")
    (run,) = find([tmp_path]).runs
    assert not run.problems and run.attacked is not None
    for row in run.rows:
        assert row.attack is not None and row.certificate.unseen
        made = card(run, row, deep=False)
        first, second = made.shown
        assert first.caption == "original, which the certifier did not see"
        assert second.caption == f"rotation by {row.certificate.threat.transform.to_text(row.attack.gamma[0])}"
        attacked = row.certificate.threat.attacked(
            digits.image(row.index), torch.tensor([row.attack.gamma], dtype=torch.float64)
        )[0]
        assert np.array_equal(pixels(second.drawing), (attacked[0] * 255).round().numpy())
        assert {"network alone, under attack", "as deployed, under attack"} <= {name for name, _ in made.facts}
    assert "attacked pictures from mnist500" in plain_words(run) and "unseen original" in plain_words(run)
    text = html.render(find([tmp_path]))
    assert "worst-of-k with k = 100" in text and "correct under attack, as deployed" in text
    assert len(run.summary.rows) == 1, "all of Γ or nothing: there is no smaller range to speak of"


def test_what_the_certificates_speak_of_is_named(results: Path) -> None:
    """The model by its name, what to deploy in a sentence, symbols where they stand, no error where there is none."""
    smooth, exact = (find([results / name]).runs[0] for name in ("dist-x", "exact"))
    fingerprint = smooth.rows[0].certificate.classifier.fingerprint
    assert smooth.model == "mnist-rotation" and exact.model == "mnist-rotation-exact"
    assert fingerprint[:12] not in html.render(find([results / "dist-x"]))
    assert deploy(smooth).startswith("Deploy mnist-rotation: the classifier smoothed over rotation and noise (σ_γ = ")
    assert "majority over many random copies" in deploy(smooth) and deploy(exact).endswith("single pass and no noise.")
    told = {s.name: s for s in settings(smooth)}
    noise, E = told["defender's noise"], told["median E"]
    assert "σ_γ is the standard" in noise.meaning and "σ_δ is the standard" in noise.meaning
    assert E.value != "0" and E.meaning.startswith("E bounds the") and "too small" in E.meaning  # it was sampled
    assert "median E" not in {s.name for s in settings(exact)} and exact.summary.median_E is None


def test_every_certified_accuracy_has_its_interval(results: Path, page: Path) -> None:
    """In the overview, in the table and with the run: computed here by summing binomial probabilities."""
    text = page.read_text(encoding="utf-8")
    for name in ("dist-x", "exact", "_a & <b> $x$"):
        (run,) = find([results / name]).runs
        for level in run.summary.rows:
            k = round(level.accuracy * run.summary.count)
            low, high = by_sums(k, run.summary.count)
            assert level.low == pytest.approx(low, abs=1e-6) and level.high == pytest.approx(high, abs=1e-6)
            said = f"<b>{level.accuracy:.3f}</b> <small>{100 * level.low:.1f}–{100 * level.high:.1f} %</small>"
            assert text.count(f"<span>{level.range}</span> {said}") >= 2
    assert text.count("95 % interval: ") == 3 and "The pale band is the 95 % confidence interval" in text


def by_sums(k: int, n: int) -> tuple[float, float]:
    """Clopper and Pearson's interval by bisection."""

    def tail(p: float, ks: range) -> float:
        return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in ks)

    ends = []
    for ks, rising in ((range(k, n + 1), True), (range(k + 1), False)):
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if (tail(middle, ks) < 0.025) == rising else (low, middle)
        ends.append(low)
    return (ends[0] if k else 0.0), (ends[1] if k < n else 1.0)


def test_runs_of_one_dataset_share_a_plot(results: Path, tmp_path: Path) -> None:
    for name in ("dist-x", "exact"):
        shutil.copytree(results / name, tmp_path / name)
    shutil.copytree(results / "dist-x", tmp_path / "again")
    text = html.render(find([tmp_path]))
    chart = re.search(
        r'<figure class="chart">(?:(?!</figure>).)*Certified accuracy: mnist500, rotation.*?</figure>', text, re.S
    )
    assert chart and chart[0].count('class="curve') == 3 and all(f"<span>{n} " in chart[0] for n in ("dist-x", "exact"))
    assert text.count("Certified accuracy: ") == 1
    errors = re.search(r'<figure class="chart">(?:(?!</figure>).)*Errors against the range.*?</figure>', text, re.S)
    assert errors and errors[0].count("<circle") == 2, "exact rests on no error bound"
    assert text.count("Certified range of each picture") == 2, "one picture alone needs no such plot"


def test_all_methods_share_a_plot_per_dataset(results: Path, tmp_path: Path) -> None:
    """Runs of the paper's experiments and others: named apart, and only where there are two to compare."""
    text = html.render(find([results]))
    charts = re.findall(r'<figure class="chart">(?:(?!</figure>).)*?All methods: .*?</figure>', text, re.S)
    assert len(charts) == 1 and "All methods: mnist500, rotation" in charts[0]
    assert charts[0].count('class="curve') == 3
    assert all(f"<span>{name} " in charts[0] for name in ("dist-x", "exact", "violations: row"))
    shutil.copytree(results / "exact", tmp_path / "exact")
    assert "All methods" not in html.render(find([tmp_path]))


@pytest.mark.parametrize(("name", "most", "gamma"), [("rotation", 10, [0.11]), ("translation", 1, [0.3, -0.8])])
def test_possible_originals_hold_the_original(name: str, most: float, gamma: list[float]) -> None:
    x, threat = data.load("mnist500").image(3), Threat.of(name, most)
    attacked = threat.attacked(x, torch.tensor([gamma], dtype=torch.float64))[0]
    ends = possible(attacked, threat)
    assert ends is not None
    assert bool((ends[0] <= x).all()) and bool((x <= ends[1]).all())
    assert float((ends[1] - ends[0]).mean()) < (0.3 if name == "rotation" else 0.6)


def test_possible_originals_need_a_bilinear_attacker() -> None:
    attacked = data.load("mnist500").image(3)
    assert possible(attacked, Threat.of("rotation", 10, interpolation="bicubic")) is None


def test_the_attacked_picture_is_the_attackers(results: Path) -> None:
    (found,) = find([results / "dist-x"]).runs
    row = found.rows[0]
    shown = card(found, row, deep=False).shown
    c = row.certificate
    assert c.reach is not None
    wanted = c.threat.attacked(data.load("mnist500").image(0), torch.tensor([c.reach.upper], dtype=torch.float64))
    assert np.array_equal(pixels(shown[1].drawing), (wanted[0, 0] * 255).round().numpy())


def pixels(drawing: str) -> Any:
    """Those of the picture in an element."""
    picture = re.search(r"base64,([^\"]+)", drawing)
    assert picture
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(picture[1]))))


def test_the_curve_of_accuracy_agrees_with_what_is_covered(results: Path) -> None:
    rows = parse(list(read_records(results / "dist-x")))
    steps, shares = accuracy_curve(rows)
    box = rows[0].certificate.threat.box
    assert steps[0] == 0 and steps[-1] == 1 and shares == sorted(shares, reverse=True)
    for t, share in zip(steps, shares, strict=True):
        small = box.scaled(t * (1 - 1e-9))
        assert share == sum(r.certificate.label == r.label and r.certificate.covers(small) for r in rows) / len(rows)
    assert all(t is None or 0 <= t <= 1 for t in map(held, rows))


def test_an_edited_record_is_shown_as_such(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(results / "dist-x", tmp_path / "edited")
    path = tmp_path / "edited" / "certificates.jsonl"
    lines = path.read_text().splitlines()
    lines[1] = lines[1].replace('"n": [300]', '"n": [301]')
    path.write_text("\n".join(lines) + "\n")
    assert main(["report", str(tmp_path / "edited"), "--out", str(tmp_path / "r.html")]) == 1
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Do not rely on this run" in text and "line 2 (picture 1)" in text
    assert "FAILED" in capsys.readouterr().err


def test_an_unfinished_run_says_so(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "dist-x", tmp_path / "half")
    path = tmp_path / "half" / "certificates.jsonl"
    path.write_text("".join(f"{line}\n" for line in path.read_text().splitlines()[:2]))
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "1 picture is still to come" in text and "Do not rely" not in text


def test_too_large_a_page_shows_fewer_images(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = find([results / "dist-x"])
    whole = html.render(found)
    monkeypatch.setattr(html, "LARGEST", len(whole.encode()) - 1)
    assert "The first 1 of 3 pictures" in html.render(found)
    monkeypatch.setattr(html, "LARGEST", 1000)
    with pytest.raises(ValueError, match="report fewer folders"):
        html.render(found)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "other"}, "format"),
        ({"rows": [["one cell"], ["one cell"]]}, "3 cells"),
        ({"remarks": []}, "as many rows"),
        ({"runs": ["../elsewhere"]}, "not in its folder"),
        ({"figures": [{"file": "absent.svg", "caption": ""}]}, "must be there"),
    ],
)
def test_a_wrong_table_is_refused(
    change: dict[str, Any], sentence: str, table: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = table | {"figures": [], "runs": []} | change
    (tmp_path / "table.json").write_text(json.dumps(wrong), encoding="utf-8")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


def test_what_cannot_be_read_is_named_beside_what_can(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(results / "dist-x", tmp_path / "good")
    pack(tmp_path / "good", tmp_path / "packed")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "table.json").write_text("{}")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 1
    captured = capsys.readouterr()
    assert "2 runs and 0 experiments" in captured.out and "is not a table" in captured.err
    shutil.copytree(results / "paper" / "violations", tmp_path / "paper")
    (tmp_path / "paper" / "row" / "certificates.jsonl").write_text("no record\n")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "r.html")]) == 1
    captured = capsys.readouterr()
    assert "2 runs and 1 experiment," in captured.out and "line 1 is not a record" in captured.err
    assert "Not everything could be read" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_mistakes_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, sentence in (
        ([str(tmp_path / "nowhere")], "there is no file or folder"),
        ([str(tmp_path)], "no results in"),
    ):
        assert main(["report", *arguments, "--out", str(tmp_path / "r.html")]) == 2
        assert sentence in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path), "--most", "0"])
    assert "at least 1" in capsys.readouterr().err


def test_the_attack_of_a_record_is_shown(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "dist-x", tmp_path / "attacked")
    path = tmp_path / "attacked" / "certificates.jsonl"
    records = [
        seal(unseal(r) | {"attack": {"gamma": [7.5], "unit": "°", "label": 0}}) for r in read_records(path.parent)
    ]
    path.write_text("".join(f"{json.dumps(r)}\n" for r in records))
    (found,) = find([tmp_path]).runs
    assert not found.problems
    assert [s.caption for s in card(found, found.rows[0], deep=False).shown] == ["original", "rotation by 7.5°"]
