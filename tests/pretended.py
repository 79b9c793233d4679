"""A second device where there is none: tensors that say they are on it, and refuse company from the CPU as a GPU does.

Numbers stay where they are. Inside `pretended()` what is made with device="cuda", or follows from such tensors, is
marked; operations on marked and unmarked tensors are RuntimeErrors, but for what torch allows (0-dim ones, but not as
bounds to clamp to; indices).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

__all__ = ["marked", "moved", "pretended"]

THERE = torch.device("cuda", 0)
MARK = "_pretended"
MOVES = {Tensor.cpu, Tensor.to, Tensor.type_as, Tensor.copy_}
HOST = {Tensor.numpy, Tensor.__array__}
INDEX = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put, torch.index_put}
CLAMPS = {
    Tensor.clamp,
    Tensor.clamp_,
    Tensor.clamp_min,
    Tensor.clamp_min_,
    Tensor.clamp_max,
    Tensor.clamp_max_,
    torch.clamp,
}
GETTERS = {Tensor.is_cuda.__get__, Tensor.shape.__get__, Tensor.dtype.__get__}  # type: ignore[attr-defined]


class Drawn(torch.Generator):
    """A generator that says where it is."""

    def __new__(cls, device: Any = "cpu") -> Drawn:
        made = super().__new__(cls, "cpu")
        made.there = torch.device(device).type == "cuda"  # type: ignore[attr-defined]
        return made

    def __init__(self, device: Any = "cpu") -> None:
        pass

    @property
    def device(self) -> torch.device:
        return THERE if self.there else torch.device("cpu")  # type: ignore[attr-defined]


def marked(value: Any) -> bool:
    return isinstance(value, Tensor) and hasattr(value, MARK)


def tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def moved(value: Any) -> Any:
    """A tensor on the other device, or a module with all that it holds."""
    if isinstance(value, nn.Module):
        for t in (*value.parameters(), *value.buffers()):
            setattr(t, MARK, True)
        return value
    return setattr(made := value.clone(), MARK, True) or made


class _Pretended(TorchFunctionMode):
    def __init__(self, is_cuda: bool) -> None:
        super().__init__()
        self.is_cuda = is_cuda

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:  # type: ignore[attr-defined]
            return THERE if marked(args[0]) else func(*args)
        if func is torch.device:
            return func(*args, **kwargs)
        if func == Tensor.is_cuda.__get__:  # type: ignore[attr-defined]
            return self.is_cuda and marked(args[0])
        if func in HOST and marked(args[0]):
            raise TypeError(f"{func.__name__}: a tensor of the other device; use .cpu() first")
        self._look(func, args, kwargs)
        target = self._target(func, args, kwargs)
        named = str if func == Tensor.to else torch.device  # of a device
        args = tuple("cpu" if isinstance(a, torch.device | named) else a for a in args)
        if "device" in kwargs and kwargs["device"] is not None:
            kwargs["device"] = "cpu"
        result = func(*args, **kwargs)
        for t in tensors(result):
            if target:
                setattr(t, MARK, True)
            elif marked(t) and func in (Tensor.cpu, Tensor.to):
                return t.detach()  # the same numbers, another object
        return result

    def _look(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = list(tensors([*args, kwargs]))
        if func in INDEX and marked(args[0]):
            given = [t for t in given if not isinstance(args[1], tuple | list | Tensor) or marked(t)]
        there = [t for t in given if marked(t)]
        here = [t for t in given if not marked(t) and (t.dim() or func in CLAMPS)]
        if there and here and func not in MOVES and func not in GETTERS:
            raise RuntimeError(f"{getattr(func, '__name__', func)}: tensors of two devices, {here[0].shape} of the CPU")

    def _target(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether the result is on the other device."""
        generator = kwargs.get("generator")
        device = kwargs.get("device")
        if func == Tensor.to and device is None:
            told = [a for a in args[1:] if isinstance(a, Tensor | torch.device | str)]
            if told:
                return marked(told[0]) if isinstance(told[0], Tensor) else torch.device(told[0]).type == "cuda"
            return marked(args[0])
        if func == Tensor.cpu:
            return False
        if func in (Tensor.copy_, Tensor.type_as):
            return marked(args[0 if func == Tensor.copy_ else 1])
        there = (
            torch.device(device).type == "cuda" if device is not None else any(map(marked, tensors([*args, kwargs])))
        )
        if isinstance(generator, Drawn) and generator.there != there:  # type: ignore[attr-defined]
            raise RuntimeError(f"{func.__name__}: a generator of another device")
        return there


@contextmanager
def pretended(patch: pytest.MonkeyPatch, is_cuda: bool = True) -> Iterator[None]:
    """`is_cuda` False where that asks for what only a real GPU has: events, compilers."""
    patch.setattr(torch, "Generator", Drawn)
    with _Pretended(is_cuda):
        yield
