"""What a checkpoint holds: everything that was prepared or registered, and where each rank is."""

from __future__ import annotations

import contextlib
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from . import checkpoint_folders as folders
from . import collectives, files, guard
from .background import Background, staged
from .data.random_state import own_random_state
from .resuming import is_divided_as_here, restore_elsewhere, restore_here
from .weights import load_weights

if TYPE_CHECKING:
    from .accelerator import Accelerator

T = TypeVar("T")
# The numbers of checkpoints are separate for each run where several share a project's directory.
_NEW_RUN_BYTES = 8
_SENTENCE = "the checkpoint {} could not be written"


def save(
    accelerator: Accelerator,
    output_dir: Path | None,
    safe: bool,
    max_shard_size: int | str,
    asynchronous: bool = False,
) -> Path:
    """Write a checkpoint; see `Accelerator.save_state`.

    Args:
        accelerator: whose.
        output_dir: None: the next of automatic naming.
        safe, max_shard_size: of the weights.
        asynchronous: return when everything is copied, and write from the background.

    Returns:
        Where it is, or will be.
    """
    # Before anything is made or gathered: where not all ranks come, nothing has happened.
    guard.enter("save_state, which every rank has to call,")
    accelerator.wait_for_saving()
    resources = contextlib.ExitStack()
    try:
        target = _begin(accelerator, output_dir, resources)
        finish = _collect(accelerator, target, safe, max_shard_size, asynchronous)
    except BaseException:
        resources.close()
        raise
    if asynchronous:
        accelerator._saving = Background(target, finish, resources)
        return target
    with resources, _together(_SENTENCE.format(target), _temporary(target)):
        finish()
    return target


def _temporary(target: Path) -> Path:
    return target.parent / f".{target.name}.tmp"


def _begin(accelerator: Accelerator, output_dir: Path | None, resources: contextlib.ExitStack) -> Path:
    """The checkpoint's directory, the same on all ranks, with an empty one beside it.

    On the main process `resources` keeps other jobs out of the place until it is closed.
    """
    config = accelerator.project_configuration
    target = output_dir
    chosen: tuple[str, int, str] | None = None
    meant = target or folders.automatic_directory(config) / f"checkpoint_{config.iteration}"
    with _together(_SENTENCE.format(meant)):
        if accelerator.is_main_process:
            if target is None:
                directory = folders.automatic_directory(config)
                directory.mkdir(parents=True, exist_ok=True)
                resources.enter_context(folders.alone_in(directory))
                run = accelerator._run or secrets.token_hex(_NEW_RUN_BYTES)
                number = folders.next_number(config, run)
                target = directory / f"checkpoint_{number}"
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                resources.enter_context(folders.alone_in(target.parent))
                run, number = accelerator._run or secrets.token_hex(_NEW_RUN_BYTES), config.iteration
            folders.recover(target)
            shutil.rmtree(_temporary(target), ignore_errors=True)
            _temporary(target).mkdir(parents=True)
            chosen = str(target), number, run
    chosen = collectives.broadcast_object(chosen)
    assert chosen is not None
    config.iteration, accelerator._run = chosen[1], chosen[2]
    return Path(chosen[0])


def _collect(
    accelerator: Accelerator, target: Path, safe: bool, max_shard_size: int | str, asynchronous: bool
) -> Callable[[], None]:
    """Everything that the checkpoint holds; returns what writes it, which needs no other rank."""
    engine, temporary = accelerator.backend, _temporary(target)
    optimizers = [o.optimizer for o in accelerator._optimizers.settled()]
    sees = _sees(temporary, accelerator)
    whole = not engine.saves_shards(accelerator._models, optimizers, all(sees))
    weights = [engine.saved_weights(m) for m in accelerator._models] if whole else []
    states = [engine.saved_optimizer(o) for o in optimizers] if whole else []
    for hook in accelerator._save_hooks:
        hook(accelerator._models, weights, str(temporary))
    shards: Callable[[], None] | None = None
    _save_window(accelerator, temporary, sees, _SENTENCE.format(target))
    if not whole:
        with _together(_SENTENCE.format(target), temporary):
            shards = engine.save_shards(temporary, accelerator._models, optimizers, asynchronous)
    ranks = collectives.gather_objects_on_main(_rank_state(accelerator))
    rest: dict[str, Any] = {}
    with _together(_SENTENCE.format(target), temporary):
        if accelerator.is_main_process:
            rest = _rest(accelerator)
            if asynchronous:
                weights, states, rest = staged((weights, states, rest))
    facts = {"processes": accelerator.num_processes, "shards": not whole, "run": accelerator._run}

    def finish() -> None:
        if shards is not None:
            # The main process's are there when every rank's are.
            shards()
        if ranks is None:
            return
        for i, state in enumerate(weights):
            files.save_weights(state, temporary / f"model_{i}" if i else temporary, max_shard_size, safe)
        for i, state in enumerate(states):
            files.save_pickled(state, temporary / _name("optimizer", i, "bin"))
        for name, state in rest.items():
            files.save_pickled(state, temporary / name)
        for rank, state in enumerate(ranks):
            files.save_pickled(state, temporary / f"random_states_{rank}.pkl")
        folders.complete(temporary, facts)
        folders.put_in_place(temporary, target)
        folders.delete_old(accelerator.project_configuration, target, str(facts["run"]))

    return finish


@contextlib.contextmanager
def _together(sentence: str, temporary: Path | None = None) -> Iterator[None]:
    """What fails on one rank fails on all, with the same cause, and leaves no files."""
    cause: str | None = None
    error: Exception | None = None
    try:
        yield
    except Exception as caught:
        error = caught
        cause = str(caught) or type(caught).__name__
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
    _fail_together(sentence, cause, error)


def _fail_together(sentence: str, cause: str | None, error: Exception | None = None) -> None:
    """Raise on every rank where one of them has a cause to.

    Raises:
        RuntimeError: with the cause and the rank.
    """
    for rank, reason in enumerate(collectives.all_gather_objects(cause)):
        if reason is not None:
            raise RuntimeError(
                f"{sentence}: {reason} (rank {rank}); earlier checkpoints are as they were"
            ) from error


def wait(accelerator: Accelerator) -> None:
    """See `Accelerator.wait_for_saving`."""
    saving, accelerator._saving = accelerator._saving, None
    if saving is None:
        return
    cause, error = saving.result()
    if cause is not None:
        shutil.rmtree(_temporary(saving.target), ignore_errors=True)
    _fail_together(_SENTENCE.format(saving.target), cause, error)


def _rank_state(accelerator: Accelerator) -> dict[str, Any]:
    """What belongs to this rank alone."""
    window = accelerator.gradient_state.window
    return {
        "random": own_random_state(),
        "loaders": [loader.position_state() for loader in accelerator._dataloaders],
        # By which a position is known on another number of ranks.
        "split": accelerator.split_batches,
        "data_ranks": accelerator.process.data_ranks,
        "window": {
            "step": window.step,
            "size": window.size,
            "batches": window.batches,
            "complete": window.complete,
        },
        "tokens": accelerator._tokens,
    }


def _sees(temporary: Path, accelerator: Accelerator) -> list[bool]:
    """For each rank, whether it sees the directory that the main process has made: a shared file system, and not one of
    the same name."""

    def number() -> int | None:
        with contextlib.suppress(OSError):
            return temporary.stat().st_ino
        return None

    found = collectives.all_gather_objects(number())
    return [n is not None and n == found[0] for n in found]


def _save_window(accelerator: Accelerator, temporary: Path, sees: list[bool], sentence: str) -> None:
    """Gradients of an open accumulation window: each rank writes its gradients, and sends them where it cannot."""
    if accelerator.gradient_state.window.complete:
        return
    own = accelerator.process_index
    with _together(sentence, temporary):
        gradients = accelerator.backend.window_gradients(accelerator._trained_parameters())
        if sees[own]:
            files.save_pickled(gradients, temporary / _window(own))
    for rank, there in enumerate(sees):
        if not there:
            sent = collectives.broadcast_object(gradients if rank == own else None, rank)
            if accelerator.is_main_process:
                files.save_pickled(sent, temporary / _window(rank))


def _window(rank: int) -> str:
    return f"window_{rank}.pkl"


def _rest(accelerator: Accelerator) -> dict[str, Any]:
    """What is the same on every rank, by the names of its files."""
    found = {
        _name("scheduler", i, "bin"): scheduler.state_dict()
        for i, scheduler in enumerate(accelerator._schedulers.settled())
    }
    if accelerator.precision.scaler is not None:
        found["scaler.pt"] = accelerator.scaler.state_dict()
    for i, item in enumerate(accelerator._custom_objects):
        found[f"custom_checkpoint_{i}.pkl"] = item.state_dict()
    return found


def _name(stem: str, index: int, suffix: str) -> str:
    return f"{stem}{f'_{index}' if index else ''}.{suffix}"


# Loading


def _agree(accelerator: Accelerator, source: Path | None) -> tuple[Path, dict[str, Any]]:
    """The checkpoint that all ranks load, and the content of its marker. The main process chooses, and completes what a
    run that was killed has left; the others look whether they see the same files.

    Args:
        source: the script's; None: the newest of automatic naming.

    Raises:
        ValueError: on every rank, with what is wrong and where.
    """
    error: str | None = None
    chosen: Path | None = None
    if accelerator.is_main_process:
        try:
            directory = (
                folders.automatic_directory(accelerator.project_configuration)
                if source is None
                else source.parent
            )
            with folders.alone_in(directory):
                chosen = source or folders.newest(directory)
                folders.recover(chosen)
            folders.check(chosen)
        except (ValueError, OSError) as caught:
            error = str(caught)
    error, chosen = collectives.broadcast_object((error, chosen))
    if error is not None or chosen is None:
        raise ValueError(error)
    facts: dict[str, Any] = {}

    def looked_at() -> tuple[str, int, int]:
        facts.update(folders.check(chosen))
        return folders.view_of(chosen)

    views = _on_all(accelerator, looked_at)
    own = views[accelerator.process_index]
    # Ranks that see the same files share the reading; one that has a copy reads that.
    readers = [rank for rank, view in enumerate(views) if view == own]

    def read() -> None:
        if own[0] != views[0][0]:
            raise ValueError(f"{chosen} holds another checkpoint here than on the main process")
        folders.check_contents(chosen, facts, readers.index(accelerator.process_index), len(readers))

    _on_all(accelerator, read)
    return chosen, facts


def _on_all(accelerator: Accelerator, look: Callable[[], T]) -> list[T]:
    """What every rank finds.

    Raises:
        ValueError: on every rank, with the cause that one of them has.
    """
    error: str | None = None
    found: T | None = None
    try:
        found = look()
    except (ValueError, OSError) as caught:
        error = str(caught)
    results: list[tuple[str | None, Any]] = collectives.all_gather_objects((error, found))
    for rank, (reason, _) in enumerate(results):
        if reason is not None:
            raise ValueError(f"rank {rank}: {reason}" if accelerator.num_processes > 1 else reason)
    return [value for _, value in results]


def load(accelerator: Accelerator, source: Path | None, model_kwargs: dict[str, Any]) -> None:
    """Read a checkpoint; see `Accelerator.load_state`."""
    guard.enter("load_state, which every rank has to call,")
    accelerator.wait_for_saving()
    source, facts = _agree(accelerator, source)
    models = list(accelerator._models)
    for hook in accelerator._load_hooks:
        hook(models, str(source))
    engine = accelerator.backend
    if facts.get("shards"):
        if not engine.reads_shards:
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

    _tell_what_is_left(accelerator, source, facts)

    def state_of(rank: int) -> dict[str, Any]:
        state: dict[str, Any] = _read(source, f"random_states_{rank}.pkl", "random state")
        if not state["window"]["complete"] and "gradients" not in state:
            state["gradients"] = _read(source, _window(rank), "accumulation window")
        return state

    if is_divided_as_here(accelerator, facts["processes"], state_of(0)):
        restore_here(accelerator, state_of(accelerator.process_index))
    else:
        restore_elsewhere(accelerator, source, facts["processes"], state_of)
    match = re.fullmatch(r"checkpoint_(\d+)", source.name)
    config = accelerator.project_configuration
    if match and config.automatic_checkpoint_naming:
        config.iteration = int(match[1]) + 1
    accelerator._run = facts.get("run", accelerator._run)
    accelerator.wait_for_everyone()


def _tell_what_is_left(accelerator: Accelerator, source: Path, facts: dict[str, Any]) -> None:
    """Print which files were for objects that a run which trains has not prepared, or not yet."""
    optimizers = len(accelerator._optimizers.settled())
    first_left = (
        f"model_{len(accelerator._models)}",
        _name("optimizer", optimizers, "bin"),
        _name("scheduler", len(accelerator._schedulers.settled()), "bin"),
        f"custom_checkpoint_{len(accelerator._custom_objects)}.pkl",
    )
    left = sorted({name.split("/")[0] for name in facts["files"]}.intersection(first_left))
    if left and optimizers and accelerator.is_main_process:
        print(
            f"accelify: {source} also holds {', '.join(left)}, for which nothing was prepared or registered before "
            "load_state: what comes later begins anew"
        )


def _read(source: Path, name: str, what: str) -> Any:
    path = source / name
    if not path.is_file():
        raise ValueError(f"the checkpoint {source} holds no {name} for the {what} that was prepared here")
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} cannot be loaded: {str(error).splitlines()[0]}") from error
