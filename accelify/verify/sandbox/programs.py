"""Other programs that a run starts where there are no namespaces.

With Landlock they run, and the kernel stops their writes elsewhere; what Landlock does not see (modes, owners, times) a
filter of system calls refuses. Without it only those run that are known to read.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import shlex
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from accelify.verify.sandbox import linux
from accelify.verify.sandbox.calls import Calls, described, refusal

_READERS = frozenset("uname hostname nproc lscpu sysctl nvidia-smi which whoami id date free df".split())
_GIT_READS = frozenset("rev-parse log show status diff describe branch ls-files".split())
# Of a C library: what changes files and is found by its name.
_UNSEEN = frozenset(
    "chmod fchmodat chown lchown fchownat utime utimes utimensat setxattr lsetxattr removexattr syscall".split()
)
"""Landlock does not see them."""
_NATIVE = _UNSEEN | frozenset(
    "open open64 openat creat fopen fopen64 freopen rename renameat renameat2 unlink unlinkat remove rmdir mkdir "
    "mkdirat link linkat symlink symlinkat truncate truncate64 mknod mkfifo system popen execve execv execvp "
    "posix_spawn posix_spawnp mount umount umount2 pivot_root chroot unshare setns kill killpg".split()
)
# chmod fchmodat fchmodat2 chown lchown fchownat utime utimes futimesat setxattr lsetxattr removexattr lremovexattr
# setxattrat removexattrat io_uring_setup; and utimensat, which is refused where it names a path.
_FILTERED = {
    "x86_64": (
        0xC000003E,
        (90, 268, 452, 92, 94, 260, 132, 235, 261, 188, 189, 197, 198, 463, 466, 425),
        280,
    ),
    "aarch64": (0xC00000B7, (53, 452, 54, 5, 6, 14, 15, 463, 466, 425), 88),
}


def install(calls: Calls, stopped: bool, report: Callable[[str], None]) -> None:
    """Start other programs under the filter, or refuse them.

    Args:
        calls: which lead paths away.
        stopped: the kernel stops what they write elsewhere.
        report: is called with what was started and could not do all it wanted.
    """
    if stopped:
        linux.libc()
        _compiled()

    def allowed(name: str, words: tuple[Any, ...]) -> None:
        if not stopped and not _reads_only(words[0]):
            raise refusal(described(name, words))

    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def popen(self: Any, args: Any, *others: Any, **options: Any) -> None:
        allowed(_caller(), (args,))
        names = (
            "bufsize",
            "executable",
            "stdin",
            "stdout",
            "stderr",
            "preexec_fn",
            "close_fds",
            "shell",
            "cwd",
        )
        options = {**dict(zip(names, others, strict=False)), **options}
        rest = others[len(names) :]
        if options.get("cwd") is not None:
            options["cwd"] = calls.private(options["cwd"])
        if isinstance(args, (list, tuple)):
            args = [_word(calls, word) for word in args]
        if stopped:
            options["preexec_fn"] = _filtered(options.get("preexec_fn"))
        if rest:
            options |= dict(
                zip(("env", "universal_newlines", "startupinfo", "creationflags"), rest, strict=False)
            )
        start(self, args, **options)

    subprocess.Popen.__init__ = popen  # type: ignore[method-assign]

    def system(command: Any) -> int:
        allowed("os.system", (command,))
        with subprocess.Popen(command, shell=True) as process:
            code = process.wait()
        if code:
            report(described("os.system", (command,)))
        return -code if code < 0 else code << 8

    os.system = system
    for name in ("posix_spawn", "posix_spawnp"):
        if hasattr(os, name):
            setattr(os, name, _refused(f"os.{name}"))
    for name in ("execv", "execve"):
        setattr(os, name, _replacing(getattr(os, name), allowed, stopped))
    wait = subprocess.Popen.wait

    @functools.wraps(wait)
    def waited(self: Any, *args: Any, **kwargs: Any) -> Any:
        code = wait(self, *args, **kwargs)
        if code and not getattr(self, "_accelify_reported", False):
            self._accelify_reported = True
            report(described("subprocess", (self.args,)))
        return code

    subprocess.Popen.wait = waited  # type: ignore[method-assign]

    def on_event(event: str, args: tuple[Any, ...]) -> None:
        if event in ("ctypes.dlsym", "ctypes.dlsym/handle") and args[1] in (_UNSEEN if stopped else _NATIVE):
            raise refusal(f"{args[1]} of a C library")

    sys.addaudithook(on_event)


def _caller() -> str:
    frame = sys._getframe(2)
    return "os.system" if frame.f_code.co_name == "system" else "subprocess"


def _refused(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **_: Any) -> Any:
        raise refusal(described(name, args[:2]))

    return refuse


def _replacing(
    function: Callable[..., Any], allowed: Callable[[str, tuple[Any, ...]], None], stopped: bool
) -> Any:
    @functools.wraps(function)
    def wrapped(path: Any, argv: Any, *rest: Any) -> Any:
        allowed(f"os.{function.__name__}", (list(argv),))
        if stopped:
            _restrict()
        return function(path, argv, *rest)

    return wrapped


def _word(calls: Calls, word: Any) -> Any:
    """A word of a command: the run's copy, where it names a file that has one."""
    if not isinstance(word, str) or not os.path.isabs(word):
        return word
    led = str(calls.readable(word))
    return led if led.startswith(calls.tree.root) else word


def _reads_only(command: Any) -> bool:
    if isinstance(command, bytes):
        command = os.fsdecode(command)
    try:
        words = shlex.split(command) if isinstance(command, str) else [os.fsdecode(word) for word in command]
    except (ValueError, TypeError):
        return False
    if isinstance(command, str) and any(sign in command for sign in "><|;&`$\n"):
        return False
    if not words:
        return True
    if words[0] == sys.executable:
        # A Python of this environment redirects its calls itself, unless it is started to ignore the environment.
        return not any(
            word.startswith("-") and any(letter in word for letter in "IES") for word in words[1:2]
        )
    program = os.path.basename(words[0])
    return program in _READERS or (program == "git" and len(words) > 1 and words[1] in _GIT_READS)


def _filtered(before: Callable[[], Any] | None) -> Callable[[], None]:
    def prepare() -> None:
        if before is not None:
            before()
        _restrict()

    return prepare


@functools.cache
def _compiled() -> ctypes.Array[ctypes.c_char] | None:
    """The filter, as the kernel reads it: one instruction of eight bytes after the other."""
    known = _FILTERED.get(platform.machine())
    if known is None:
        return None
    machine, numbers, by_path = known
    load, equal, answer = 0x20, 0x15, 0x06
    allow, refuse = 0x7FFF0000, 0x00050000 | errno.EPERM
    lines = [(load, 0, 0, 4), (equal, 1, 0, machine), (answer, 0, 0, refuse), (load, 0, 0, 0)]
    # The call that sets times: refused unless its second argument, the path, is absent.
    times = [(load, 0, 0, 24), (equal, 0, 3, 0), (load, 0, 0, 28), (equal, 0, 1, 0), (answer, 0, 0, allow),
             (answer, 0, 0, refuse)]  # fmt: skip
    lines += [(equal, 0, len(times), by_path), *times]
    lines += [(equal, len(numbers) - k, 0, number) for k, number in enumerate(numbers)]
    lines += [(answer, 0, 0, allow), (answer, 0, 0, refuse)]
    code = b"".join(struct.pack("HBBI", *line) for line in lines)
    return ctypes.create_string_buffer(code, len(code))


def _restrict() -> None:
    code = _compiled()
    if code is not None:
        program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(code))
        buffer = ctypes.create_string_buffer(program, len(program))
        set_seccomp, with_filter = 22, 2
        linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
        linux.prctl(set_seccomp, with_filter, ctypes.addressof(buffer))
