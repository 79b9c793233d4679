"""Models by name: the embedded one, weight files of ours, and what other tools wrote or a Python function builds.

A model from elsewhere carries no defence. One small batch shows whether it can be certified at all: it must take
float32 batches of any size and return finite logits, the same for the same picture each time and in any company.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import io
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor, nn

from warpcert.classifier import About, Classifier, Plain
from warpcert.classifier.storage import configured
from warpcert.classifier.votes.voting import Logits, logits_of
from warpcert.learn import zoo
from warpcert.networks import weights as models
from warpcert.networks.weights import Network

__all__ = ["Opened", "absolute", "open_model"]


@final
@dataclass(frozen=True)
class Opened:
    """A network on its device, the number of its classes, and how its own file configures it."""

    network: Logits
    classes: int
    facts: dict[str, Any]
    about: About

    def classifier(self, changes: Mapping[str, Any] | None = None) -> Classifier:
        """What the file says, or another classifier around the same network: with these facts in place of its own."""
        return configured(self.network, dict(changes) if changes else self.facts, self.about)


def absolute(name: str) -> str:
    """The same model under a name that does not depend on the working folder."""
    if _is_entry(name):
        return name
    return str((Path(name) if Path(name).suffix in _READERS else zoo.find(name)).absolute())


def open_model(name: str, shape: tuple[int, ...] | None, device: torch.device) -> Opened:
    """The model called `name`, if it classifies batches [B, *shape]; a ValueError says what does not fit.

    name: one of the zoo's, a .safetensors file of ours, .onnx (needs onnxruntime), .pt (TorchScript), .pt2 (exported
    program), or `package.module:function`, which returns an nn.Module or a function of batches. All but the first three
    can run code: open only what you trust. A model from elsewhere is a plain classifier until it is told otherwise.
    """
    path = Path(name)
    if not _is_entry(name) and path.suffix not in _READERS:
        network, facts, about = zoo.read(name)
        assert isinstance(network, Network)
        config = network.config
        if shape is not None and config.shape != shape:
            raise ValueError(f"the data has items of shape {list(shape)}, but the model takes {list(config.shape)}")
        return Opened(network.to(device), config.classes, facts, about)
    if shape is None:
        raise ValueError(f"the shape of the pictures that {name} takes is needed")
    if _is_entry(name):
        f, fingerprint = _entry(name, device)
        label = name.rpartition(":")[2]
    else:
        if not path.is_file():
            raise ValueError(f"there is no file {path}")
        f, content = _READERS[path.suffix](path, device)
        fingerprint, label = hashlib.sha256(content).hexdigest(), path.stem
    network = f if isinstance(f, nn.Module) and not isinstance(f, torch.jit.ScriptModule) else Foreign(f)
    network.fingerprint = fingerprint
    facts = Plain(network).facts
    return Opened(network, _probe(f, name, shape, device), facts, About(name=label))


@final
class Foreign:
    """Code of another tool as a network: batch → logits."""

    fingerprint = ""

    def __init__(self, f: Logits) -> None:
        self._f = f

    def __call__(self, batch: Tensor) -> Tensor:
        return self._f(batch)


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _probe(f: Logits, name: str, shape: tuple[int, ...], device: torch.device) -> int:
    """The number of classes, or a ValueError that says why this cannot be certified."""
    batch = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)).to(device)
    answers = []
    for size in (1, 3, 3):
        try:
            with torch.no_grad():
                answers.append(logits_of(f, batch[:size]))
        except Exception as error:  # foreign code may raise anything
            raise ValueError(
                f"{name} fails on a float32 batch {[size, *shape]}: {_first_line(error)}. A model must take pictures "
                "of this shape in batches of any size (export it with a dynamic batch) and return finite logits"
            ) from None
    alone, first, second = answers
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-3):
        raise ValueError(f"{name} answers the same batch differently each time (dropout?): export it in eval mode")
    if not torch.allclose(alone, first[:1], rtol=1e-3, atol=1e-3):
        raise ValueError(
            f"{name} answers a picture differently in other batches (batch statistics?): export it in eval mode"
        )
    return first.shape[1]


@final
class _Onnx:
    """An ONNX graph as a classifier: float32 in, logits out, no gradients."""

    def __init__(self, session: Any, device: torch.device) -> None:
        self._session, self._device, self._input = session, device, session.get_inputs()[0].name

    def __call__(self, batch: Tensor) -> Tensor:
        if batch.requires_grad and torch.is_grad_enabled():
            raise ValueError("an ONNX model gives no gradients: attack it by worst-of-k or a grid")
        (logits,) = self._session.run(None, {self._input: batch.detach().cpu().contiguous().numpy()})
        return torch.from_numpy(logits).to(self._device)


def _onnx(path: Path, device: torch.device) -> tuple[Logits, bytes]:
    try:
        import onnx
        import onnxruntime as ort
    except ImportError:
        raise ValueError(f"{path} needs onnxruntime: pip install 'warpcert[onnx]'") from None
    cuda = device.type == "cuda"
    if cuda and "CUDAExecutionProvider" not in ort.get_available_providers():
        raise ValueError("this onnxruntime cannot use the GPU: install onnxruntime-gpu, or use the CPU")
    provider = "CUDAExecutionProvider" if cuda else "CPUExecutionProvider"
    settings = {"device_id": str(device.index or 0), "use_tf32": "0"} if cuda else {}  # float32 means float32
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = torch.get_num_threads(), 3
    try:
        # Weights in files beside the model are brought in: what is hashed is all that is run.
        whole, bare = onnx.load(path), onnx.load(path, load_external_data=False)
        content = path.read_bytes() if whole == bare else whole.SerializeToString()
        session = ort.InferenceSession(content, options, providers=[(provider, settings)])
    except Exception as error:  # onnxruntime's own errors share no base class
        raise ValueError(f"{path} is not a whole ONNX model: {_first_line(error)}") from None
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if len(inputs) != 1 or len(outputs) != 1 or inputs[0].type != "tensor(float)":
        kinds = ", ".join(i.type for i in inputs)
        raise ValueError(f"{path} must have one float32 input and one output; got {kinds} and {len(outputs)} output(s)")
    if isinstance(inputs[0].shape[0], int):
        raise ValueError(f"{path} takes only batches of {inputs[0].shape[0]}: export it with a dynamic batch")
    return _Onnx(session, device), content


def _zipped(path: Path, signs: tuple[str, ...], kind: str) -> bytes:
    content = path.read_bytes()
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(name.endswith(signs) for name in archive.namelist()):
                return content
    raise ValueError(
        f"{path} is not {kind}; pickled checkpoints are never opened, since they run code: "
        "build the network in Python and name it as package.module:function"
    )


def _torchscript(path: Path, device: torch.device) -> tuple[Logits, bytes]:
    content = _zipped(path, ("constants.pkl",), "a TorchScript archive (torch.jit.save)")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch would rather see .pt2
        try:
            model = torch.jit.load(io.BytesIO(content), map_location=device)  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise ValueError(f"{path} is not a whole TorchScript archive: {_first_line(error)}") from None
    return model.eval(), content


def _exported(path: Path, device: torch.device) -> tuple[Logits, bytes]:
    content = _zipped(
        path, ("archive_format", "serialized_exported_program.json"), "an exported program (torch.export.save)"
    )
    try:
        program = torch.export.load(io.BytesIO(content))
    except Exception as error:
        raise ValueError(f"{path} is not a whole exported program: {_first_line(error)}") from None
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, device)
    module = program.module()
    return lambda batch: module(batch), content  # the module says "training" whatever it was exported in


_READERS: dict[str, Callable[[Path, torch.device], tuple[Logits, bytes]]] = {
    ".onnx": _onnx,
    ".pt": _torchscript,
    ".pt2": _exported,
}


def _is_entry(name: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", name) is not None


def _entry(name: str, device: torch.device) -> tuple[Logits, str]:
    module_name, _, attribute = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
        made = attrgetter(attribute)(module)()
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{name} does not name a function that can be called: {error}") from None
    digest = hashlib.sha256(name.encode())
    source = inspect.getsourcefile(module)
    digest.update(Path(source).read_bytes() if source else b"")
    if isinstance(made, nn.Module):
        made = made.eval().requires_grad_(False).to(device)
        digest.update(models.fingerprint(made).encode())
    elif not callable(made):
        raise ValueError(f"{name} must return an nn.Module or a function of batches; got {type(made).__name__}")
    return made, digest.hexdigest()
