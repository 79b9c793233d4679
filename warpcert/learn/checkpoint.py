"""A training run at rest: its state in one safetensors file, its log in lines of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from warpcert.learn.recipe import Recipe
from warpcert.networks.files import read_tensors, write_tensors

__all__ = ["CHECKPOINT", "append_log", "forget", "restore", "store", "trim_log"]

CHECKPOINT = "checkpoint.safetensors"
FORMAT = "warpcert-checkpoint-1"


def store(
    path: Path,
    recipe: Recipe,
    modules: dict[str, nn.Module],
    optimizer: torch.optim.Optimizer,
    progress: dict[str, Any],
) -> None:
    """Writes the state of the modules and the optimizer, and `progress` (JSON); all of the file or nothing."""
    tensors = {f"{part}/{name}": t for part, module in modules.items() for name, t in module.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": t for name, t in state.items() if isinstance(t, Tensor)}
    metadata = {"format": FORMAT, "recipe": json.dumps(recipe.to_dict()), "progress": json.dumps(progress)}
    write_tensors({name: t.detach().cpu().clone().contiguous() for name, t in tensors.items()}, path, metadata)


def restore(
    path: Path, recipe: Recipe, modules: dict[str, nn.Module], optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Puts a stored state back and returns its progress; a checkpoint of another recipe is refused."""
    tensors, metadata = read_tensors(path, FORMAT)
    theirs = Recipe.from_dict(json.loads(metadata["recipe"]))
    if theirs != recipe:
        changed = [k for k, v in recipe.to_dict().items() if theirs.to_dict()[k] != v]
        raise ValueError(
            f"{path} belongs to a recipe with a different {', '.join(changed)}; use another folder, or do not resume"
        )
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        if part == "optimizer":
            index, _, field = rest.partition("/")
            states.setdefault(int(index), {})[field] = tensor
    for part, module in modules.items():
        module.load_state_dict({n.removeprefix(f"{part}/"): t for n, t in tensors.items() if n.startswith(f"{part}/")})
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})
    for parameter, state in optimizer.state.items():  # fused optimizers ask for one layout of weights and their state
        state |= {k: torch.empty_like(parameter).copy_(t) for k, t in state.items() if t.shape == parameter.shape}
    return dict(json.loads(metadata["progress"]))


def forget(out: Path) -> None:
    """Lets the next training in this folder begin anew."""
    (out / CHECKPOINT).unlink(missing_ok=True)


def append_log(path: Path, row: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def trim_log(path: Path, step: int) -> dict[str, Any]:
    """Drops the rows after `step`, which a resumed run writes again, and one cut off. Returns the last that stays."""
    rows: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            row = json.loads(line)
        except ValueError:
            break
        if row["step"] <= step:
            rows.append(row)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return rows[-1] if rows else {}
