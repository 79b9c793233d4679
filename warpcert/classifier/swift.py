"""The same network, made for many batches of one size: compiled on a GPU, channels last on a CPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from copy import deepcopy
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from warpcert.classifier.base import Classifier

__all__ = ["swift"]

_LARGE = 1 << 15  # values in a picture from which on compiling, which takes about a minute, pays
_Case = tuple[str, torch.Size]  # a classifier by its fingerprint, which tells its weights and its slack; and a batch
_COMPILED: WeakKeyDictionary[nn.Module, dict[_Case, Callable[[Tensor], Tensor] | None]] = WeakKeyDictionary()


@torch.inference_mode()
def swift(classifier: Classifier, pictures: Tensor) -> Callable[[Tensor], Tensor]:
    """`classifier.logits` for batches like these pictures [B,C,H,W], faster if it can be.

    Its logits differ by rounding from those of the classifier, as those of other batch sizes do; the slack on logits is
    there for that. Where they differ on these pictures by more than a quarter of the slack, times the largest logit (at
    least 1), or where compiling fails, it is `classifier.logits` itself.
    """
    network = classifier.network
    if pictures[0].numel() < _LARGE or pictures.dim() != 4 or not isinstance(network, nn.Module):
        return classifier.logits
    if not pictures.is_cuda:
        pictures = pictures[:2]  # nothing is made for a size of batch
    known, case = _COMPILED.setdefault(network, {}), (classifier.fingerprint, pictures.shape)
    if case not in known:
        half = classifier.precision == "half"
        try:
            made = _compiled(network, half) if pictures.is_cuda else _laid_out(network, half)
            wanted, got = classifier.logits(pictures), made(pictures)
            largest = wanted.abs().amax(1).clamp_min(1)
            off = float(((wanted - got).abs().amax(1) / largest).max())
            known[case] = made if off <= classifier.slack / 4 else None
        except Exception as error:  # whatever a compiler may lack; the network is as right without it
            warnings.warn(f"the network is not made faster: {error}", stacklevel=2)
            known[case] = None
    return known[case] or classifier.logits


def _laid_out(network: nn.Module, half: bool) -> Callable[[Tensor], Tensor]:
    copy = deepcopy(network).float().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def logits(pictures: Tensor) -> Tensor:
        seen = pictures.half() if half else pictures  # the same numbers in float32, see `half`
        result: Tensor = copy(seen.float().contiguous(memory_format=torch.channels_last))
        return result

    return logits


def _compiled(network: nn.Module, half: bool) -> Callable[[Tensor], Tensor]:
    run = torch.compile(network, dynamic=False)

    def logits(pictures: Tensor) -> Tensor:
        if half:
            result: Tensor = run(pictures.to(torch.float16, memory_format=torch.channels_last))
        else:
            result = run(pictures.contiguous())
        return result.float()

    return logits
