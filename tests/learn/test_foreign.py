"""Models from elsewhere: the same answers as the network they were made from, and a sentence for each that is unfit."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from foreign_models import net
from torch import Tensor, nn

import warpcert as wc
from warpcert.app.cli import main
from warpcert.learn import zoo
from warpcert.learn.foreign import Opened, absolute, open_model
from warpcert.learn.zoo import EMBEDDED
from warpcert.runs.store import read_records

SHAPE, CPU = (1, 28, 28), torch.device("cpu")
FOREIGN = ["--transform", "rotation", "--gamma", "5", "--noise", "0.1"]
VOTES = ["--sigma", "5", "--method", "base", "--n", "100", "--windows", "1"]


def script(model: nn.Module, path: Path, example: Tensor | None = None) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.jit.script(model) if example is None else torch.jit.trace(model, example, check_trace=False)
        torch.jit.save(made, str(path))
    return path


def export(model: nn.Module, path: Path, dynamic: bool = True) -> Path:
    shapes = ({0: torch.export.Dim("batch")},) if dynamic else None
    torch.export.save(torch.export.export(model, (torch.rand(2, *SHAPE),), dynamic_shapes=shapes), path)
    return path


def onnx_file(path: Path, batch: str | int = "batch", size: int = 784, beside: bool = False) -> Path:
    """The linear part of `net` as an ONNX graph, written by hand; `beside` keeps the weights in a file of their own."""
    onnx = pytest.importorskip("onnx", reason="ONNX models are an extra: pip install 'warpcert[onnx]'")
    head = net().head
    side = int(size**0.5)
    h, tensors = onnx.helper, onnx.numpy_helper
    graph = h.make_graph(
        [h.make_node("Flatten", ["x"], ["flat"]), h.make_node("Gemm", ["flat", "w", "b"], ["y"], transB=1)],
        "net",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 1, side, side])],
        [h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [batch, 10])],
        [
            tensors.from_array(head.weight.detach().numpy()[:, :size].copy(), "w"),
            tensors.from_array(head.bias.detach().numpy(), "b"),
        ],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path, save_as_external_data=beside, location="weights.bin", size_threshold=0)
    return path


def fingerprint(opened: Opened) -> str:
    return opened.classifier().fingerprint


def batch() -> Tensor:
    return torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))


def test_torchscript_and_exported_programs_answer_as_the_network(tmp_path: Path) -> None:
    model = net().eval()
    for path in (script(model, tmp_path / "a.pt"), export(model, tmp_path / "a.pt2")):
        opened = open_model(str(path), SHAPE, CPU)
        made = opened.classifier()
        assert opened.classes == 10 and made.kind == "plain" and made.name == "a" and made.threat is None
        assert made.source == hashlib.sha256(path.read_bytes()).hexdigest()
        torch.testing.assert_close(made(batch()), model(batch()))


def test_onnx_answers_as_the_network(tmp_path: Path) -> None:
    path = onnx_file(tmp_path / "a.onnx")
    made = open_model(str(path), SHAPE, CPU).classifier()
    assert made.source == hashlib.sha256(path.read_bytes()).hexdigest()
    torch.testing.assert_close(made(batch()), net().head(batch().flatten(1)))
    with pytest.raises(ValueError, match="gives no gradients"):
        made(batch().requires_grad_())


def test_onnx_weights_beside_the_file_are_read_and_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime would look for them in the working folder, where others may lie."""
    path = onnx_file(tmp_path / "a.onnx", beside=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "weights.bin").write_bytes(bytes((tmp_path / "weights.bin").stat().st_size))
    monkeypatch.chdir(tmp_path / "elsewhere")
    opened = open_model(str(path), SHAPE, CPU)
    torch.testing.assert_close(opened.classifier()(batch()), net().head(batch().flatten(1)))
    raw = np.fromfile(tmp_path / "weights.bin", dtype=np.float32)
    (raw * 2).tofile(tmp_path / "weights.bin")
    assert fingerprint(open_model(str(path), SHAPE, CPU)) != fingerprint(opened)


def test_entry_points(tmp_path: Path) -> None:
    opened = open_model("foreign_models:net", SHAPE, CPU)
    torch.testing.assert_close(opened.classifier()(batch()), net().eval()(batch()))
    assert fingerprint(open_model("foreign_models:net", SHAPE, CPU)) == fingerprint(opened)
    other = open_model("foreign_models:random_net", SHAPE, CPU)
    assert fingerprint(open_model("foreign_models:random_net", SHAPE, CPU)) != fingerprint(other)
    assert open_model("foreign_models:function", SHAPE, CPU).classes == 10


def test_names_hold_in_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers are told: they may start in another folder than the driver."""
    monkeypatch.chdir(tmp_path)
    assert absolute("foreign_models:net") == "foreign_models:net" and Path(absolute(EMBEDDED)).is_absolute()
    assert absolute("a.onnx") == str(tmp_path / "a.onnx")
    name = next(n for n in zoo.manifest() if n != EMBEDDED)
    source = Path(__file__).parents[2] / "recipes" / name / "model.safetensors"
    monkeypatch.setenv(zoo.FOLDER_VARIABLE, "weights")
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / f"{name}.safetensors").symlink_to(source)
    assert absolute(name) == str(tmp_path / "weights" / f"{name}.safetensors")


def test_what_cannot_be_certified_is_said(tmp_path: Path) -> None:
    model = net().eval()
    torch.save(model.state_dict(), tmp_path / "pickle.pt")
    (tmp_path / "junk.pt").write_bytes(b"junk")
    (tmp_path / "junk.pt2").write_bytes(b"junk")
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    train = net().train()
    wrong = {
        str(tmp_path / "pickle.pt"): "pickled checkpoints are never opened",
        str(tmp_path / "junk.pt"): "not a TorchScript archive",
        str(tmp_path / "junk.pt2"): "not an exported program",
        str(tmp_path / "junk.onnx"): "not a whole ONNX model",
        str(tmp_path / "none.onnx"): "there is no file",
        str(script(nn.Sequential(nn.Flatten(), nn.Linear(49, 10)), tmp_path / "shape.pt")): r"\[1, 1, 28, 28\]",
        str(script(train.drop.train(), tmp_path / "drop.pt", batch())): "must return logits",
        str(
            script(nn.Sequential(nn.Flatten(), nn.Dropout(0.5).train()), tmp_path / "random.pt", batch())
        ): "differently each time",
        str(script(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784)), tmp_path / "norm.pt", batch())): "other batches",
        str(export(model, tmp_path / "fixed.pt2", dynamic=False)): "dynamic batch",
        str(onnx_file(tmp_path / "fixed.onnx", batch=4)): "only batches of 4.*dynamic batch",
        str(onnx_file(tmp_path / "small.onnx", size=49)): r"\[1, 1, 28, 28\]",
        "foreign_models:nan": "NaN",
        "foreign_models:number": "must return an nn.Module or a function",
        "foreign_models:nothing": "does not name a function",
        "no_such_package:net": "does not name a function",
    }
    for name, sentence in wrong.items():
        with pytest.raises(ValueError, match=sentence):
            open_model(name, SHAPE, CPU)


def test_a_model_from_elsewhere_is_made_another_classifier() -> None:
    opened = open_model("foreign_models:net", SHAPE, CPU)
    facts = wc.Smoothed(opened.network, noise=0.1, over={"rotation": 5}).facts
    made = opened.classifier(facts)
    assert made.kind == "smoothed" and made.over == {"rotation": (5.0,)} and made.name == "net"
    assert made.source == opened.classifier().source and made.fingerprint != fingerprint(opened)


def test_the_command_line_asks_for_the_threat(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(onnx_file(tmp_path / "a.onnx"))
    run = ["certify", "--model", model, "--count", "1", "--out", str(tmp_path / "run")]
    assert main(run) == 2
    assert "--threat rotation=30" in capsys.readouterr().err
    assert main([*run, *FOREIGN, *VOTES]) == 0
    (record,) = read_records(tmp_path / "run")
    assert record["certificate"]["classifier"]["network"] == hashlib.sha256(Path(model).read_bytes()).hexdigest()
    assert main(["attack", "--model", model, *FOREIGN, "--count", "1", "--k", "3", "--method", "gradient"]) == 2
    assert "no gradients" in capsys.readouterr().err


def test_workers_open_models_from_elsewhere(tmp_path: Path) -> None:
    run = ["certify", "--model", "foreign_models:net", *FOREIGN, *VOTES, "--count", "2"]
    for name, more in (("one", []), ("two", ["--workers", "2"])):
        assert main([*run, "--out", str(tmp_path / name), *more]) == 0
    windows = [
        {r["index"]: r["certificate"]["windows"] for r in read_records(tmp_path / name)} for name in ("one", "two")
    ]
    assert windows[0] == windows[1] and len(windows[0]) == 2
