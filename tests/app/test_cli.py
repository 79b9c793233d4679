"""The command line as a person uses it: defaults, kill and resume, check, and a clear sentence for every mistake."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from warpcert import attacks, methods, transforms
from warpcert.app.cli import build_parser, main, options
from warpcert.app.cli.commands.paper import FILES
from warpcert.app.cli.main import COMMANDS
from warpcert.errors import proved
from warpcert.learn import data, zoo
from warpcert.originals.named import INVERSES
from warpcert.paper import desk
from warpcert.paper.experiments import EXPERIMENTS
from warpcert.runs.store import read_config, read_records

MODEL = ["--model", "mnist-rotation"]  # smoothed over rotations and noise
FAST = [*MODEL, "--n", "300", "--windows", "1", "--count", "3"]
SAMPLED = ["--betas", "40", "--bound", "sampled"]


def test_the_words_are_those_of_the_registries() -> None:
    """They are written out in options.py, so that a typo is answered before torch is loaded."""
    assert set(options.METHODS) == set(methods.METHODS)
    assert set(options.TRANSFORMS) == set(transforms.TRANSFORMS)
    assert set(options.ATTACKS) == set(attacks.ATTACKS) and set(options.INVERSES) == set(INVERSES)
    assert options.BOUNDS == proved.BOUNDS and options.DATASETS == data.NAMES
    assert (options.EMBEDDED, options.DATA_VARIABLE) == (zoo.EMBEDDED, data.ROOT_VARIABLE)
    assert set(FILES) == set(desk.FILES) and tuple(EXPERIMENTS) == options.EXPERIMENTS
    known = {name for kind in methods.METHODS.values() for name in kind.settings()}
    assert set(options.SETTINGS) == known - {"seed"}, "every setting of a method is a flag; a run has its own seed"


TYPOS = [
    *(["--version"], ["--help"], ["certfy"], ["certify", "--metod", "exact"], ["certify", "--model", "mnist-rotatoin"]),
    *(["certify", "--data", "minst"], ["check", "no/run"], ["predict", "no.png"], ["paper", "abblation"]),
]


@pytest.mark.parametrize("words", TYPOS)
def test_it_answers_without_loading_torch(words: list[str]) -> None:
    code = (
        "import sys; from warpcert.app.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_a_mistyped_option_is_told_what_it_may_mean(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["certify", "--gama", "5"])
    assert "certify has no option --gama: did you mean --gamma?" in capsys.readouterr().err


def certify(folder: Path, *more: str) -> int:
    method = more[more.index("--method") + 1] if "--method" in more else "dist-x"
    bound = SAMPLED if method == "dist-x" else []
    return main(["certify", "--method", method, *FAST, *bound, "--out", str(folder), *more])


def test_certify_writes_table_pictures_and_checkable_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certify(tmp_path) == 0
    out = capsys.readouterr().out
    assert "±30°" in out and "heuristic" in out and "HEURISTIC" in out
    assert "</svg>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert main(["check", str(tmp_path)]) == 0
    before = (tmp_path / "certificates.jsonl").read_bytes()
    assert certify(tmp_path, "--json") == 0  # nothing left to do
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["count"] == 3 and set(summary["certified_accuracy"]) == {"±0°", "±10°", "±20°", "±30°", "±50°"}
    assert (tmp_path / "certificates.jsonl").read_bytes() == before


def test_check_fails_loudly_on_an_edited_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certify(tmp_path, "--count", "1")
    path = tmp_path / "certificates.jsonl"
    path.write_text(path.read_text().replace('"n": [300]', '"n": [301]'))
    capsys.readouterr()
    assert main(["check", str(tmp_path)]) == 1
    assert "FAILED line 1" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["base", "dist-x"])
@pytest.mark.parametrize(
    "extra", [[], ["--two-class"], ["--nested", "--n", "60"]], ids=["joint", "two-class", "nested"]
)
def test_methods_and_forms(tmp_path: Path, method: str, extra: list[str]) -> None:
    assert certify(tmp_path, "--count", "1", "--method", method, *extra) == 0
    (record,) = read_records(tmp_path)
    assert record["certificate"]["method"] == method
    assert main(["check", str(tmp_path)]) == 0


def test_killed_and_started_again_it_goes_on(tmp_path: Path) -> None:
    """kill -9 in the middle, twice; then the same records as an undisturbed run, no image twice and none lost."""
    args = ["certify", *FAST, *SAMPLED, "--count", "12"]
    command = [sys.executable, "-m", "warpcert", *args, "--out", str(tmp_path / "killed")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for wanted in (1, 4):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path, deadline = tmp_path / "killed" / "certificates.jsonl", time.monotonic() + 60
        while time.monotonic() < deadline and process.poll() is None:
            if path.exists() and path.read_bytes().count(b"\n") >= wanted:
                break
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with path.open("ab") as file:
        file.write(b'{"index": 99, "torn')
    assert main([*args, "--out", str(tmp_path / "killed")]) == 0
    assert main([*args, "--out", str(tmp_path / "whole")]) == 0

    def counts(folder: str) -> dict[int, object]:
        return {r["index"]: r["certificate"]["windows"] for r in read_records(tmp_path / folder)}

    assert sorted(r["index"] for r in read_records(tmp_path / "killed")) == list(range(12))
    assert counts("killed") == counts("whole")


def test_the_default_bound_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [*MODEL, "--n", "300", "--betas", "20", "--windows", "1", "--count", "1", "--gamma", "5"]
    assert main(["certify", *few, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "with confidence" in out and "HEURISTIC" not in out
    assert main(["check", str(tmp_path)]) == 0


def test_cover_and_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--count", "2", "--gamma", "3"]
    noisy = [*MODEL, "--sigma", "0", "--noise", "0.15"]  # noise alone: another classifier of the same network
    assert main(["certify", "--method", "cover", *noisy, *few, "--out", str(tmp_path / "cover")]) == 0
    assert "with confidence" in capsys.readouterr().out
    assert main(["certify", *few, "--out", str(tmp_path / "exact")]) == 0
    assert "proved" in capsys.readouterr().out
    for name in ("cover", "exact"):
        assert main(["check", str(tmp_path / name)]) == 0
        assert any(r["certificate"]["label"] == r["true_label"] for r in read_records(tmp_path / name))
    assert main(["certify", "--method", "cover", *noisy, *few, "--n", "3", "--out", str(tmp_path / "few")]) == 2
    assert "too small ever" in capsys.readouterr().err
    plain = ["--levels", "1", "--unrounded"]
    assert main(["certify", "--method", "exact", *plain, *few, "--out", str(tmp_path / "no")]) == 2
    assert "levels" in capsys.readouterr().err
    assert main(["certify", "--method", "cover", *MODEL, *few, "--out", str(tmp_path / "other")]) == 2
    assert "smooths over rotation too" in capsys.readouterr().err
    assert main(["certify", "--half", "--levels", "64", *few, "--out", str(tmp_path / "half")]) == 0
    assert "proved" in capsys.readouterr().out and main(["check", str(tmp_path / "half")]) == 0
    facts = read_config(tmp_path / "half")["classifier"]["facts"]
    assert (facts["kind"], facts["step"], facts["precision"], facts["slack"]) == ("levels", 64, "half", 0.01)


def test_what_a_run_certified_is_what_predict_deploys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "--levels", "64", "--count", "1", "--gamma", "1", "--out", str(tmp_path)]) == 0
    (record,) = read_records(tmp_path)
    capsys.readouterr()
    assert main(["predict", "--from", str(tmp_path), "--count", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["label"] == record["certificate"]["label"]
    assert main(["predict", "--from", str(tmp_path), "--noise", "0.2", "--half"]) == 2
    assert "leave out --noise, --half" in capsys.readouterr().err
    config = read_config(tmp_path)
    config["classifier"]["facts"]["step"] = 32
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["predict", "--from", str(tmp_path), "--count", "1"]) == 2
    assert "not the classifier that was certified" in capsys.readouterr().err


def test_one_picture_and_a_gate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = data.load("mnist500")
    Image.fromarray(digits.images[0, 0].numpy()).save(tmp_path / "digit.png")
    assert main(["certify", str(tmp_path / "digit.png"), "--gamma", "2"]) == 0
    assert "digit.png: Proved:" in capsys.readouterr().out
    few = ["certify", "--count", "2", "--gamma", "1", "--out", str(tmp_path / "run")]
    assert main([*few, "--fail-under", "0"]) == 0
    assert main([*few, "--fail-under", "1.5"]) == 2
    wrong = ["--data", str(_mislabelled(tmp_path)), "--out", str(tmp_path / "wrong"), "--fail-under", "0.9"]
    assert main([*few, *wrong]) == 1
    assert "below 0.9" in capsys.readouterr().err


def _mislabelled(folder: Path) -> Path:
    import numpy as np

    digits = data.load("mnist500").part(0, 2)
    y = (digits.labels.numpy() + 1) % 10
    np.savez(
        folder / "wrong.npz",
        x_test=digits.images[:, 0].numpy(),
        y_test=y,
        x_train=digits.images[:, 0].numpy(),
        y_train=y,
    )
    return folder / "wrong.npz"


def test_bounds_say_what_they_are_proved_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = [
        "certify",
        *MODEL,
        *["--n", "300", "--betas", "12", "--windows", "1", "--count", "1", "--gamma", "0.5", "--alpha", "0.2"],
    ]
    bilinear = ["--bound", "interval", "--interpolation", "bilinear", "--time-limit", "5"]
    assert main([*few, *bilinear, "--out", str(tmp_path / "a")]) == 0
    assert main([*few, "--bound", "interval", "--out", str(tmp_path / "b")]) == 2
    assert "bound curve" in capsys.readouterr().err
    assert main([*few, "--attacker", "nearest", "--out", str(tmp_path / "c")]) == 2
    assert "nearest" in capsys.readouterr().err


def test_calibrate_certify_and_predict_online(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """dist-d end to end with the sampled error (heuristic), and the refusal of another configuration."""
    file, more = tmp_path / "calibration.json", [*MODEL, "--gamma", "5", "--bound", "sampled"]
    few = ["--start", "5", "--estimate", "3", "--count", "40", "--rho", "0.05", "--alpha", "0.05"]
    assert main(["bound", *more, *few, "--out", str(file)]) == 0
    assert "q_E ≥" in capsys.readouterr().out
    one = ["--count", "1", "--gamma", "5", "--calibration", str(file), *MODEL]
    few = ["--method", "dist-d", "--n", "300", "--windows", "1"]
    assert main(["certify", *few, *one, "--out", str(tmp_path / "d")]) == 0
    assert main(["check", str(tmp_path / "d"), "--against", "--sample", "1"]) == 0
    assert main(["predict", *one, "--n", "2000", "--alpha", "0.01"]) == 0
    assert "unseen original" in capsys.readouterr().out
    assert main(["predict", *one[:3], "6", *one[4:]]) == 2
    assert "does not fit" in capsys.readouterr().err
    assert main(["certify", "--method", "dist-d", *MODEL, "--count", "1", "--out", str(tmp_path / "e")]) == 2
    assert "warpcert bound" in capsys.readouterr().err


def test_predict_from_data_and_from_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digits = data.load("mnist500")
    Image.fromarray(digits.images[0, 0].numpy()).save(tmp_path / "digit.png")
    assert main(["predict", str(tmp_path / "digit.png"), *MODEL, "--n", "200", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["label"] in (-1, int(digits.labels[0])) and sum(answer["counts"]) == 200
    assert main(["predict", "--count", "2", "--n", "200", *MODEL]) == 0
    assert "votes" in capsys.readouterr().out
    assert main(["predict", "--count", "2"]) == 0  # it does not vote
    assert "votes" not in capsys.readouterr().out
    Image.new("L", (5, 5)).save(tmp_path / "small.png")
    assert main(["predict", str(tmp_path / "small.png")]) == 2
    (tmp_path / "no.png").write_text("not a picture")
    assert main(["predict", str(tmp_path / "no.png")]) == 2


@pytest.mark.parametrize("method", ["worst-of-k", "grid", "gradient"])
def test_attack(tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "--method", method, "--k", "5", "--count", "2", *MODEL, "--out", str(tmp_path)]) == 0
    assert "under attack" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "attacks.jsonl").read_text().splitlines()]
    assert [r["index"] for r in rows] == [0, 1] and all(abs(r["gamma"][0]) <= 50 + 1e-6 for r in rows)
    with Image.open(tmp_path / "0.png") as picture:
        assert picture.size == (28, 28)
    behind_levels = main(["attack", "--method", method, "--k", "5", "--count", "1"])
    assert behind_levels == (2 if method == "gradient" else 0)


def test_data_lists_what_is_there_and_what_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WARPCERT_DATA", raising=False)
    assert main(["data"]) == 0
    out = capsys.readouterr().out
    assert "mnist500" in out and "found" in out and "WARPCERT_DATA" in out


def test_train_a_recipe_and_certify_with_it(tmp_path: Path) -> None:
    import numpy as np

    digits = data.load("mnist500")
    np.savez(tmp_path / "few.npz", x_train=digits.images[:, 0].numpy(), y_train=digits.labels.numpy())
    (tmp_path / "recipe.toml").write_text(
        f'name = "tiny"\ndataset = "{tmp_path}/few.npz"\nwidth = 4\nblocks = [1]\nsteps = 3\nbatch = 32\n'
        'validation = 50\ngamma = [20]\nsigma = [10]\nvignette = "circle"\nadv_steps = 1\nadv_eps = 0.1\n'
    )
    assert main(["train", str(tmp_path / "recipe.toml"), "--out", str(tmp_path / "model")]) == 0
    assert certify(tmp_path / "run", "--model", str(tmp_path / "model" / "model.safetensors"), "--count", "1") == 0
    (record,) = read_records(tmp_path / "run")
    assert record["certificate"]["threat"]["box"]["upper"] == pytest.approx([0.349066], abs=1e-5)


def test_an_own_model_needs_its_settings_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certify(tmp_path, "--transform", "translation") == 2
    assert "--gamma" in capsys.readouterr().err
    assert certify(tmp_path, "--transform", "translation", "--gamma", "1") == 2
    assert "smooths over rotation" in capsys.readouterr().err
    more = ["--transform", "translation", "--gamma", "1", "--sigma", "1", "--noise", "0.2", "--vignette", "rectangle"]
    assert certify(tmp_path, "--count", "1", *more) == 0


WRONG = {
    "alpha": (["--alpha", "1.5"], "alpha"),
    "n": (["--n", "3"], "too small ever to certify"),
    "sigma": (["--sigma", "-3"], "positive"),
    "gamma dimension": (["--gamma", "1", "2", "3"], "rotation"),
    "device": (["--device", "gpu"], "device"),
    "data": (["--data", "nothing"], "nothing"),
    "model": (["--model", "nothing.safetensors"], "nothing.safetensors"),
    "too many": (["--start", "499", "--count", "5"], "500 pictures"),
    "interpolation": (["--interpolation", "sinc"], "sinc"),
    "another method's": (["--target", "0.5"], "--target"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_gets_a_sentence_and_exit_code_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args, words = WRONG[name]
    assert certify(tmp_path, *args) == 2
    err = capsys.readouterr().err
    assert words in err and "Traceback" not in err


@pytest.mark.parametrize("words", [["--count", "0"], ["--batch", "0"], ["--seed", "-1"], ["--start", "-1"]])
def test_numbers_that_cannot_be_are_refused_at_once(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["certify", *words])
    assert stop.value.code == 2 and "expected a whole number" in capsys.readouterr().err


def test_other_arguments_in_the_same_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert certify(tmp_path, "--count", "1") == 0
    assert certify(tmp_path, "--count", "1", "--seed", "5") == 2
    assert "seed" in capsys.readouterr().err


def test_broken_weights_and_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asset = zoo.find(zoo.EMBEDDED)
    (tmp_path / "cut.safetensors").write_bytes(asset.read_bytes()[:5000])
    save_file({"w": torch.zeros(3)}, str(tmp_path / "foreign.safetensors"))
    for name in ("cut", "foreign"):
        assert certify(tmp_path / "run", "--model", str(tmp_path / f"{name}.safetensors")) == 2
        assert f"{name}.safetensors" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert certify(tmp_path / "file" / "run") == 2
    assert "Traceback" not in capsys.readouterr().err


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        with pytest.raises(SystemExit) as stop:
            build_parser().parse_args([command, "--help"])
        assert stop.value.code == 0
        assert len(capsys.readouterr().out) > 100


def test_a_dry_run_prints_the_estimate_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["certify", "--count", "3", "--gamma", "2", "--out", str(tmp_path / "run")]
    assert main([*few, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert [line.split(":")[0] for line in out.splitlines()] == [
        "picture 0", "picture 1", "picture 2", "exact, 3 pictures, one after the other",
    ]  # fmt: skip
    assert out.count("passes") == 4 and not (tmp_path / "run").exists()
    assert main([*few, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["count"] == 3 and len(told["some"]) == 3 and told["passes"] > 3 and told["seconds"] > 0
    Image.fromarray(data.load("mnist500").images[0, 0].numpy()).save(tmp_path / "digit.png")
    assert main(["certify", str(tmp_path / "digit.png"), "--gamma", "2", "--dry-run"]) == 0
    assert "digit.png: about " in capsys.readouterr().out
    assert main(["certify", "--method", "cover", "--count", "1", "--dry-run"]) == 2
    assert "cover" in capsys.readouterr().err


def test_a_long_run_says_so_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = ["certify", "--count", "2", "--gamma", "1", "--out", str(tmp_path)]
    monkeypatch.setattr("warpcert.app.cli.estimates.LONG", 1e-6)
    assert main(few) == 0
    assert "2 pictures will take about " in capsys.readouterr().err
    assert main(few) == 0  # nothing is left
    assert "will take" not in capsys.readouterr().err
    monkeypatch.setattr("warpcert.app.cli.estimates.LONG", 1e6)
    assert main([*few, "--count", "3"]) == 0
    assert "will take" not in capsys.readouterr().err


def test_a_look_that_takes_too_long_is_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(*_: object) -> None:
        while True:
            torch.zeros(1)

    few = ["certify", "--count", "2", "--gamma", "1"]
    monkeypatch.setattr("warpcert.app.cli.estimates._foreseen", endless)
    monkeypatch.setattr("warpcert.app.cli.estimates.LOOK", 0.01)
    assert main([*few, "--out", str(tmp_path / "a")]) == 0
    assert "2 pictures will take cannot be told within 0.01 s: --dry-run" in capsys.readouterr().err
    assert main([*few, "--time-limit", "90", "--out", str(tmp_path / "b")]) == 0
    assert "2 pictures will take at most 3 min" in capsys.readouterr().err


def test_a_calibration_says_how_long_it_takes() -> None:
    from rich.console import Console

    from warpcert.app.cli.estimates import Timed

    now, shown, said = [0.0], list[tuple[str, int, int]](), StringIO()
    watch = Timed(lambda *told: shown.append(told), Console(file=said, width=200), lambda: now[0])
    for what, seconds, count in (("choose E", 1.0, 20), ("test E", 4.0, 500)):
        for done in range(count + 1):
            watch(what, done, count)
            now[0] += seconds
    assert len(shown) == 522
    assert said.getvalue() == "test E: 4 s a picture, so that 497 more will take about 33 min\n"
