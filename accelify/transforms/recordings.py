"""Environments of reinforcement learning that record videos of their episodes: on the main process only.

env = RecordVideo(env, folder)    ->  if accelerator.is_main_process:
                                          env = RecordVideo(env, folder)
env = RecordVideo(gym.make(name), folder)
    ->  env = gym.make(name)
        if accelerator.is_main_process:
            env = RecordVideo(env, folder)

The wrapper records the episodes that the environment plays. Where it cannot be left out, it is a finding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.syntax import dotted
from accelify.transforms.base import Change, Context
from accelify.transforms.files import FILES
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, PutUnder

_WORD = re.compile(rb"\b(RecordVideo|Monitor|VecVideoRecorder)\b")
_RECORDER = re.compile(
    r"(gym|gymnasium)\.wrappers\.(\w+\.)*(RecordVideo|Monitor)$|stable_baselines3\.(\w+\.)*VecVideoRecorder$"
)
# Wrappers that run environments in separate processes, to which the Accelerator cannot be passed.
_STARTING = re.compile(rb"\b(AsyncVectorEnv|SubprocVecEnv|make_vec|multiprocessing)\b|\bvector\.make\b")
# What only the wrapper has.
_ASKED = frozenset(
    "get_episode_rewards get_episode_lengths get_total_steps stats_recorder video_recorder recorded_frames "
    "start_video_recorder close_video_recorder start_recording stop_recording".split()
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a guard for each such wrapper, or a finding where every process needs it."""
    script, tree = context.script, context.tree
    if not tree.mentions(_WORD):
        return
    asked = any(node.attr in _ASKED for node in tree.nodes(ast.Attribute))
    for call in script.calls_named(_RECORDER.match):
        if context.is_settled(call):
            continue
        edits = [] if asked or _runs_elsewhere(context, call) else _edits(context, call)
        if edits:
            yield context.change(FILES, call, "every process would record these episodes", edits)
        else:
            message = "every process records videos of these episodes; wrap it on the main process alone"
            yield context.change(FILES, call, message)


def _runs_elsewhere(context: Context, call: ast.Call) -> bool:
    """Whether the function around a call may be run in another process, for one environment of several."""
    if context.script.scope_of(call).kind != "function":
        return False
    return any(module.tree.mentions(_STARTING) for module in context.script.modules)


def _edits(context: Context, call: ast.Call) -> list[Edit]:
    """The edits that wrap an environment on the main process; none where it is not bound to a name there."""
    tree, stmt = context.tree, context.tree.parent(call)
    if not isinstance(stmt, ast.Assign) or len(stmt.targets) != 1 or not call.args:
        return []
    name, inner = dotted(stmt.targets[0]), call.args[0]
    accelerator = (
        context.accelerator(stmt) if name is not None and not isinstance(inner, ast.Starred) else None
    )
    if accelerator is None:
        return []
    if dotted(inner) == name:
        context.guarded.add(stmt)
        return [PutUnder(stmt, stmt, f"if {accelerator}.is_main_process:")]
    text = tree.segment(call)
    if "\n" in text or not isinstance(inner, ast.Call) or context.is_claimed(inner):
        return []
    context.claim(call)
    wrapped = verbs.written(tree, call, [verbs.replace(inner, str(name))])
    lines = (f"if {accelerator}.is_main_process:", f"{tree.indent_unit()}{name} = {wrapped}")
    return [
        verbs.replace(call, inner),
        InsertAfter(stmt, lines, order=-10),
    ]
