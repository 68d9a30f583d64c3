"""Checkpoints on disk.

A checkpoint is written into a hidden directory beside its own, synced, marked complete with a list of its files and
renamed. Whatever kills the run at whatever time, the old checkpoint or the new one is there whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import collectives, files, guard
from .data.random_state import own_random_state, restore_random_state
from .plugins import ProjectConfiguration

if TYPE_CHECKING:
    from .accelerator import Accelerator
    from .backends.base import Backend

MARKER = "accelify-checkpoint.json"
_FORMAT = 1


def automatic_directory(config: ProjectConfiguration) -> Path:
    """Where automatically named checkpoints are."""
    if config.project_dir is None:
        raise ValueError("automatic_checkpoint_naming needs a project_dir")
    return Path(config.project_dir) / "checkpoints"


def _numbered(directory: Path) -> list[tuple[int, Path]]:
    """The complete checkpoints of automatic naming, oldest first."""
    found = []
    for path in directory.glob("checkpoint_*"):
        match = re.fullmatch(r"checkpoint_(\d+)", path.name)
        if match and (path / MARKER).is_file():
            found.append((int(match[1]), path))
    return sorted(found)


def newest(directory: Path) -> Path:
    """The newest complete checkpoint of automatic naming.

    Raises:
        ValueError: there is none.
    """
    for aside in directory.glob(".checkpoint_*.old"):
        _recover(directory / aside.name[1:-4])
    found = _numbered(directory)
    if not found:
        raise ValueError(f"no complete checkpoint in {directory}")
    return found[-1][1]


# Saving


def save(accelerator: Accelerator, target: Path, safe: bool, max_shard_size: int | str) -> None:
    """Write a checkpoint; see `Accelerator.save_state`."""
    # Before anything is made or gathered: where not all ranks come, nothing has happened.
    guard.enter("save_state, which every rank has to call,")
    engine = accelerator.backend
    whole = not engine.writes_shards
    weights = [accelerator.get_state_dict(m) for m in accelerator._models] if whole else []
    optimizers = (
        [engine.optimizer_state_dict(o.optimizer) for o in accelerator._optimizers.settled()] if whole else []
    )
    temporary = target.parent / f".{target.name}.tmp"
    with _together(f"the checkpoint {target} could not be written"):
        if accelerator.is_main_process:
            _recover(target)
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
    for hook in accelerator._save_hooks:
        hook(accelerator._models, weights, str(temporary))
    if not whole:
        with _together(f"the checkpoint {target} could not be written", temporary):
            engine.save_shards(
                temporary, accelerator._models, [o.optimizer for o in accelerator._optimizers.settled()]
            )
    # The main process writes alone, so no file system has to be shared between machines.
    ranks = collectives.all_gather_objects(_rank_state(accelerator))
    with _together(f"the checkpoint {target} could not be written", temporary):
        if accelerator.is_main_process:
            _write_files(accelerator, temporary, weights, optimizers, ranks, safe, max_shard_size)
            _complete(temporary, {"processes": accelerator.num_processes, "shards": not whole})
            _put_in_place(temporary, target)
            _delete_old(accelerator.project_configuration, target)


@contextlib.contextmanager
def _together(sentence: str, temporary: Path | None = None) -> Iterator[None]:
    """What fails on one rank fails on all, with the same cause, and leaves nothing behind."""
    cause: str | None = None
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        error = caught
        cause = str(caught) or type(caught).__name__
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    causes = collectives.all_gather_objects(cause)
    for rank, told in enumerate(causes):
        if told is not None:
            raise RuntimeError(
                f"{sentence}: {told} (rank {rank}); earlier checkpoints are as they were"
            ) from error


def _rank_state(accelerator: Accelerator) -> dict[str, Any]:
    """What belongs to this rank alone."""
    window = accelerator.gradient_state.window
    state: dict[str, Any] = {
        "random": own_random_state(),
        "loaders": [loader.position_state() for loader in accelerator._dataloaders],
        "window": {
            "step": window.step,
            "size": window.size,
            "batches": window.batches,
            "complete": window.complete,
        },
        "tokens": accelerator._tokens,
        "gradients": None,
    }
    if not window.complete:
        state["gradients"] = accelerator.backend.window_gradients(accelerator._trained_parameters())
    return state


def _name(stem: str, index: int, suffix: str) -> str:
    return f"{stem}{f'_{index}' if index else ''}.{suffix}"


def _write_files(
    accelerator: Accelerator,
    directory: Path,
    weights: list[dict[str, Any]],
    optimizers: list[dict[str, Any]],
    ranks: list[dict[str, Any]],
    safe: bool,
    max_shard_size: int | str,
) -> None:
    for i, state in enumerate(weights):
        files.save_weights(state, directory / f"model_{i}" if i else directory, max_shard_size, safe)
    for i, state in enumerate(optimizers):
        files.save_pickled(state, directory / _name("optimizer", i, "bin"))
    for i, scheduler in enumerate(accelerator._schedulers.settled()):
        files.save_pickled(scheduler.state_dict(), directory / _name("scheduler", i, "bin"))
    if accelerator.precision.scaler is not None:
        files.save_pickled(accelerator.scaler.state_dict(), directory / "scaler.pt")
    for i, item in enumerate(accelerator._custom_objects):
        files.save_pickled(item.state_dict(), directory / f"custom_checkpoint_{i}.pkl")
    for rank, state in enumerate(ranks):
        files.save_pickled(state, directory / f"random_states_{rank}.pkl")


def _complete(directory: Path, facts: dict[str, Any]) -> None:
    """Make all files durable, then write the marker that lists them."""
    sizes, checksums = {}, {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            with open(path, "rb") as written:
                os.fsync(written.fileno())
            name = path.relative_to(directory).as_posix()
            sizes[name], checksums[name] = path.stat().st_size, files.checksum(path)
    with files.whole_file(directory / MARKER) as temporary:
        temporary.write_text(
            json.dumps({"format": _FORMAT, **facts, "files": sizes, "checksums": checksums}, indent=1)
        )


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.old"


def _put_in_place(temporary: Path, target: Path) -> None:
    """Rename; a directory that was there goes aside until the new one stands, and its other files come along."""
    old = _aside(target)
    if target.exists():
        os.replace(target, old)
    os.replace(temporary, target)
    files.sync_directory(target.parent)
    if old.exists():
        _finish_replacing(old, target)


def _finish_replacing(old: Path, target: Path) -> None:
    own = _listed(old)
    for path in sorted(old.iterdir()):
        if path.name != MARKER and path.name not in own and not (target / path.name).exists():
            os.replace(path, target / path.name)
    shutil.rmtree(old, ignore_errors=True)


def _listed(directory: Path) -> set[str]:
    """First parts of the paths that belong to the checkpoint in `directory`."""
    try:
        return {name.split("/")[0] for name in json.loads((directory / MARKER).read_text())["files"]}
    except (OSError, ValueError, KeyError):
        return set()


def _recover(target: Path) -> None:
    """Finish what a run that was killed between two renames left."""
    old = _aside(target)
    if not old.exists():
        return
    if target.exists():
        _finish_replacing(old, target)
    else:
        os.replace(old, target)


def _delete_old(config: ProjectConfiguration, new: Path) -> None:
    if config.automatic_checkpoint_naming and config.total_limit is not None:
        others = [path for _, path in _numbered(new.parent) if path != new]
        for path in others[: max(0, len(others) + 1 - max(1, config.total_limit))]:
            # Unmarked first: one that is half deleted is not taken for a checkpoint.
            (path / MARKER).unlink()
            shutil.rmtree(path, ignore_errors=True)


# Loading


def check(directory: Path, contents: bool = False) -> dict[str, Any]:
    """The marker of a complete checkpoint.

    Args:
        directory: the checkpoint.
        contents: read its files and compare their checksums, besides their sizes.

    Raises:
        ValueError: the directory is none, with what is wrong.
    """
    if not directory.is_dir():
        raise ValueError(f"there is no checkpoint at {directory}")
    try:
        facts = json.loads((directory / MARKER).read_text())
        listed = dict(facts["files"])
        number = facts["format"]
    except FileNotFoundError:
        raise ValueError(f"{directory} is not a complete checkpoint: it has no {MARKER}") from None
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{directory} is not a checkpoint of accelify: its {MARKER} cannot be read"
        ) from None
    if number != _FORMAT:
        raise ValueError(f"the checkpoint {directory} has format {number}; this version reads {_FORMAT}")
    for name, size in listed.items():
        path = directory / name
        if not path.is_file() or path.stat().st_size != size:
            raise ValueError(f"the checkpoint {directory} is torn: {name} is missing or has another size")
        # Checkpoints of earlier versions have no checksums.
        written = facts.get("checksums", {}).get(name) if contents else None
        if written is not None and files.checksum(path) != written:
            raise ValueError(
                f"the checkpoint {directory} is damaged: {name} is not what was written; load an older one"
            )
    return facts  # type: ignore[no-any-return]


def _agree(accelerator: Accelerator, source: Path | None) -> tuple[Path, dict[str, Any]]:
    """The checkpoint that all ranks load, and what its marker says. The main process chooses, and completes what a
    run that was killed has left; the others look whether they see the same files.

    Args:
        source: the script's; None: the newest of automatic naming.

    Raises:
        ValueError: on every rank, with what is wrong and where.
    """
    error: str | None = None
    chosen: tuple[str, str] | None = None
    if accelerator.is_main_process:
        try:
            if source is None:
                source = newest(automatic_directory(accelerator.project_configuration))
            _recover(source)
            check(source, contents=True)
            chosen = str(source), _digest(source)
        except ValueError as caught:
            error = str(caught)
    error, chosen = collectives.broadcast_object((error, chosen))
    if error is not None or chosen is None:
        raise ValueError(error)
    facts: dict[str, Any] = {}
    try:
        facts = check(Path(chosen[0]))
        if _digest(Path(chosen[0])) != chosen[1]:
            error = f"{chosen[0]} holds another checkpoint here than on the main process"
    except ValueError as caught:
        error = str(caught)
    for rank, told in enumerate(collectives.all_gather_objects(error)):
        if told is not None:
            raise ValueError(f"rank {rank}: {told}" if accelerator.num_processes > 1 else told)
    return Path(chosen[0]), facts


def _digest(directory: Path) -> str:
    return hashlib.blake2b((directory / MARKER).read_bytes()).hexdigest()


def load(accelerator: Accelerator, source: Path | None, model_kwargs: dict[str, Any]) -> None:
    """Read a checkpoint; see `Accelerator.load_state`."""
    guard.enter("load_state, which every rank has to call,")
    source, facts = _agree(accelerator, source)
    models = list(accelerator._models)
    for hook in accelerator._load_hooks:
        hook(models, str(source))
    engine = accelerator.backend
    if facts.get("shards"):
        if not engine.writes_shards:
            raise ValueError(
                f"the checkpoint {source} holds each rank's part of the weights, and this run's engine reads whole "
                "ones: load it with the engine that saved it, or put the weights together with accelify merge-weights"
            )
        engine.load_shards(source, models, [o.optimizer for o in accelerator._optimizers.settled()])
    else:
        for i, model in enumerate(models):
            load_weights(model, source / f"model_{i}" if i else source, engine=engine, **model_kwargs)
        for i, optimizer in enumerate(accelerator._optimizers.settled()):
            state = _read(source, _name("optimizer", i, "bin"), "optimizer")
            engine.load_optimizer_state_dict(optimizer.optimizer, state)
    for i, scheduler in enumerate(accelerator._schedulers.settled()):
        scheduler.load_state_dict(_read(source, _name("scheduler", i, "bin"), "scheduler"))
    if accelerator.precision.scaler is not None:
        accelerator.scaler.load_state_dict(_read(source, "scaler.pt", "gradient scaler"))
    for i, item in enumerate(accelerator._custom_objects):
        item.load_state_dict(_read(source, f"custom_checkpoint_{i}.pkl", "registered object"))
    if facts["processes"] == accelerator.num_processes:
        name = f"random_states_{accelerator.process_index}.pkl"
        _restore_rank(accelerator, _read(source, name, "random state"))
    elif accelerator.is_main_process:
        print(
            f"accelify: {source} was saved by {facts['processes']} processes and is loaded by "
            f"{accelerator.num_processes}: random states and the position in the epoch are not restored"
        )
    match = re.fullmatch(r"checkpoint_(\d+)", source.name)
    config = accelerator.project_configuration
    if match and config.automatic_checkpoint_naming:
        config.iteration = int(match[1]) + 1
    accelerator.wait_for_everyone()


def _read(source: Path, name: str, what: str) -> Any:
    path = source / name
    if not path.is_file():
        raise ValueError(f"the checkpoint {source} holds no {name} for the {what} that was prepared here")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded: {str(error).splitlines()[0]}") from error


def _restore_rank(accelerator: Accelerator, state: dict[str, Any]) -> None:
    if len(state["loaders"]) != len(accelerator._dataloaders):
        raise ValueError(
            f"the checkpoint was saved with {len(state['loaders'])} prepared loaders; here are "
            f"{len(accelerator._dataloaders)}"
        )
    window = accelerator.gradient_state.window
    for name, value in state["window"].items():
        setattr(window, name, value)
    window.iteration = None
    accelerator._tokens = state["tokens"]
    parameters = accelerator._trained_parameters()
    if state["gradients"] is not None and len(parameters) == len(state["gradients"]):
        accelerator.backend.restore_window_gradients(parameters, state["gradients"])
    restore_random_state(state["random"])
    for loader, position in zip(accelerator._dataloaders, state["loaders"], strict=True):
        loader.resume_from(position, state["random"])


def load_weights(
    model: torch.nn.Module,
    directory: str | Path,
    strict: bool = True,
    engine: Backend | None = None,
    **kwargs: Any,
) -> None:
    """Load what `save_model` wrote, in one file or several; names that tied weights left out are no error.

    Args:
        model: the script's own, or a prepared one together with its `engine`.
        directory: where `save_model` wrote to.
        strict: missing and unexpected names are errors.
        engine: whose wrapper `model` is in.
        **kwargs: for torch's `load_state_dict`.

    Raises:
        ValueError: there are no weights, or not those of this model.
    """
    directory = Path(directory)
    weights = read_weights(directory)
    wrapped = getattr(model, "_orig_mod", model)
    model = engine.unwrap(wrapped) if engine is not None else model
    try:
        if engine is not None and not kwargs:
            missing, unexpected = engine.load_state_dict(wrapped, weights, strict=False)
        else:
            missing, unexpected = model.load_state_dict(weights, strict=False, **kwargs)
    except RuntimeError as error:
        raise ValueError(f"the weights in {directory} do not fit {type(model).__name__}: {error}") from None
    state = dict(model.named_parameters(remove_duplicate=False)) | dict(
        model.named_buffers(remove_duplicate=False)
    )
    there = {_identity(state[n]) for n in weights if n in state}
    missing = [n for n in missing if n not in state or _identity(state[n]) not in there]
    if strict and (missing or unexpected):
        what = f"lack {', '.join(missing[:5])}" if missing else f"have {', '.join(unexpected[:5])} besides"
        raise ValueError(f"the weights in {directory} do not fit {type(model).__name__}: they {what}")


def _identity(tensor: torch.Tensor) -> Any:
    """The same for tied weights: one object, or one piece of memory."""
    in_memory = type(tensor.data) is torch.Tensor and tensor.device.type in ("cpu", "cuda", "mps")
    return (tensor.data_ptr(), tensor.shape) if in_memory else id(tensor)


def read_weights(directory: Path) -> dict[str, Any]:
    """All weights in a directory written by `save_model`."""
    for stem, suffix in (("model", "safetensors"), ("pytorch_model", "bin")):
        index = directory / f"{stem}.{suffix}.index.json"
        single = directory / f"{stem}.{suffix}"
        if index.is_file():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        elif single.is_file():
            names = [single.name]
        else:
            continue
        weights: dict[str, Any] = {}
        for name in names:
            weights.update(_read_tensors(directory / name))
        return weights
    raise ValueError(f"there are no weights in {directory}")


def _read_tensors(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(str(path))
        return torch.load(path, map_location="cpu", weights_only=True)  # type: ignore[no-any-return]
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
