"""The mounts that this process sees, as a tree."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Kernel interfaces: they hold no files of the user's, and an overlay cannot be over them.
VIRTUAL = frozenset(
    "proc sysfs devtmpfs devpts cgroup cgroup2 mqueue debugfs tracefs securityfs pstore bpf configfs efivarfs "
    "binfmt_misc fusectl nsfs autofs rpc_pipefs hugetlbfs selinuxfs".split()
)
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(eq=False)
class Mount:
    """One mount. `children` are mounted somewhere below `path`, or over it."""

    path: str
    kind: str
    options: frozenset[str]
    children: list[Mount] = field(default_factory=list)

    def over(self, path: str) -> Mount:
        """The mount that is seen at `path`, a folder of this one: this, or one that was mounted over it."""
        for child in reversed(self.children):
            if child.path == path:
                return child.over(path)
        return self

    def below(self, path: str) -> bool:
        """Whether something is mounted strictly below `path`."""
        prefix = path.rstrip("/") + "/"
        return any(child.path.startswith(prefix) and child.path != path for child in self.children)


def read_mounts(text: str | None = None) -> Mount:
    """The root's mount, from /proc/self/mountinfo or from `text` of that form."""
    if text is None:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    found: dict[str, Mount] = {}
    parents: list[tuple[str, Mount]] = []
    for line in text.splitlines():
        words = line.split(" ")
        kind = words[words.index("-") + 1]
        path = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), words[4])
        mount = Mount(path, kind, frozenset(words[5].split(",")))
        found[words[0]] = mount
        parents.append((words[1], mount))
    root: Mount | None = None
    for parent, mount in parents:
        if parent in found and found[parent] is not mount:
            found[parent].children.append(mount)
        elif mount.path == "/":
            root = mount
    if root is None:
        raise OSError("the mounts of this process cannot be read")
    return root.over("/")
