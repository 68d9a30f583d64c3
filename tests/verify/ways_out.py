"""Ways to change something outside a trial run. Each acts on `PLACE`, a real folder of its own.

A place holds `file` (text), `folder/inner/deep`, `data.npy`, `data.bin` and `data.db`. What a way needs beyond, it
makes.
"""

from __future__ import annotations

WAYS = {
    "open-w": "open(PLACE + '/file', 'w').write('x')",
    "open-append": "open(PLACE + '/file', 'a').write('x')",
    "open-update": "open(PLACE + '/file', 'r+').write('x')",
    "open-new": "open(PLACE + '/new', 'x').write('x')",
    "open-bytes-path": "open(os.fsencode(PLACE + '/file'), 'wb').write(b'x')",
    "os-open": "os.write(os.open(PLACE + '/file', os.O_WRONLY | os.O_TRUNC), b'x')",
    "os-open-from-folder": "os.write(os.open('file', os.O_WRONLY | os.O_TRUNC, dir_fd=os.open(PLACE, 0)), b'x')",
    "pathlib-write": "pathlib.Path(PLACE, 'file').write_text('x')",
    "pathlib-touch": "pathlib.Path(PLACE, 'file').touch(); pathlib.Path(PLACE, 'new').touch()",
    "pathlib-unlink": "pathlib.Path(PLACE, 'file').unlink()",
    "home-tilde": "open(os.path.expanduser('~/file'), 'w').write('x')",
    "home-variable": "open(os.environ['HOME'] + '/file', 'w').write('x')",
    "os-system": "os.system(f'echo x > {PLACE}/file')",
    "subprocess-redirect": "subprocess.run(['sh', '-c', f'echo x >> {PLACE}/file'])",
    "subprocess-remove": "subprocess.run(['rm', '-rf', PLACE + '/folder'])",
    "subprocess-modes": "subprocess.run(['sh', '-c', f'chmod 777 {PLACE}/file; touch {PLACE}/file'])",
    "subprocess-python": "subprocess.run([sys.executable, '-c', f'open({PLACE!r} + \"/file\", \"w\").write(\"x\")'])",
    "subprocess-isolated-python": "subprocess.run([sys.executable, '-I', '-c', f'open({PLACE!r} + \"/file\", \"w\")'])",
    "subprocess-link-and-write": "subprocess.run(['sh', '-c', f'ln {PLACE}/file here && echo x >> here'])",
    "popen": "os.popen(f'echo x > {PLACE}/file').read()",
    "exec-in-child": "in_child(lambda: os.execv('/bin/sh', ['sh', '-c', f'echo x > {PLACE}/file']))",
    "posix-spawn": "os.waitpid(os.posix_spawn('/bin/sh', ['sh', '-c', f'echo x > {PLACE}/file'], {}), 0)",
    "torch-save": "torch.save({'a': torch.zeros(3)}, PLACE + '/file')",
    "torch-save-old": "torch.save({'a': 1}, PLACE + '/file', _use_new_zipfile_serialization=False)",
    "torch-native-writer": "torch._C.PyTorchFileWriter(PLACE + '/file').write_end_of_file()",
    "torch-jit-save": "torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), PLACE + '/file')",
    "torch-jit-method": "torch.jit.script(torch.nn.Linear(1, 1)).save(PLACE + '/file')",
    "safetensors": "from safetensors.torch import save_file\nsave_file({'a': torch.zeros(3)}, PLACE + '/file')",
    "numpy-save": "numpy.save(PLACE + '/data.npy', numpy.zeros(2))",
    "numpy-tofile": "numpy.zeros(2).tofile(PLACE + '/data.bin')",
    "numpy-memmap": "m = numpy.memmap(PLACE + '/data.bin', 'uint8', 'r+'); m[:] = 7; m.flush()",
    "numpy-load-mapped": "m = numpy.load(PLACE + '/data.npy', mmap_mode='r+'); m[:] = 7; m.flush()",
    "torch-from-file": "torch.from_file(PLACE + '/data.bin', shared=True, size=8, dtype=torch.uint8).fill_(7)",
    "mmap": "f = open(PLACE + '/data.bin', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:4] = b'xxxx'; m.flush()",
    "sqlite": "c = sqlite3.connect(PLACE + '/data.db'); c.execute('insert into t values (2)'); c.commit()",
    "rename-onto": "open('fresh', 'w').write('x'); os.rename('fresh', PLACE + '/file')",
    "rename-away": "os.rename(PLACE + '/file', PLACE + '/other')",
    "rename-folder": "os.rename(PLACE + '/folder', PLACE + '/other')",
    "replace": "open('fresh', 'w').write('x'); os.replace('fresh', PLACE + '/file')",
    "lock-and-rename": "open(PLACE + '/file.lock', 'x').write('x'); os.rename(PLACE + '/file.lock', PLACE + '/file')",
    "remove": "os.remove(PLACE + '/file')",
    "rmdir": "os.remove(PLACE + '/folder/inner/deep'); os.rmdir(PLACE + '/folder/inner')",
    "rmtree": "shutil.rmtree(PLACE + '/folder')",
    "shutil-move": "shutil.move(PLACE + '/folder', PLACE + '/moved')",
    "shutil-copy": "open('fresh', 'w').write('x'); shutil.copy('fresh', PLACE + '/file')",
    "truncate": "os.truncate(PLACE + '/file', 1)",
    "chmod": "os.chmod(PLACE + '/file', 0o777)",
    "chmod-open": "os.fchmod(os.open(PLACE + '/file', os.O_RDONLY), 0o777)",
    "utime": "os.utime(PLACE + '/file', (1, 1))",
    "utime-open": "os.utime(os.open(PLACE + '/file', os.O_RDONLY), (1, 1))",
    "symlink-and-write": "os.symlink(PLACE + '/file', 'by_link'); open('by_link', 'w').write('x')",
    "link-and-write": "os.link(PLACE + '/file', 'by_hard_link'); open('by_hard_link', 'w').write('x')",
    "symlinked-folder": "os.symlink(PLACE, 'linked'); open('linked/file', 'w').write('x')",
    "proc-root": "open('/proc/self/root' + PLACE + '/file', 'w').write('x')",
    "proc-cwd": "open('/proc/self/cwd/' + os.path.relpath(PLACE) + '/file', 'w').write('x')",
    "proc-parent": "open(f'/proc/{os.getppid()}/root{PLACE}/file', 'w').write('x')",
    "proc-outside": "open(f'/proc/{OUTSIDE}/root{PLACE}/file', 'w').write('x')",
    "chdir": "os.chdir(PLACE); open('file', 'w').write('x'); os.system('echo x > file')",
    "parent-folder": "open(os.path.join(os.path.relpath(PLACE), 'file'), 'w').write('x')",
    "above-the-root": "open('../' * 40 + PLACE + '/file', 'w').write('x')",
    "shell-parent-folder": "os.system(f'echo x > {os.path.relpath(PLACE)}/file')",
    "beside-the-script": "open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'beside'), 'w').write('x')",
    "real-script-folder": "os.remove(SCRIPT_FOLDER + '/precious.txt'); open(SCRIPT_FOLDER + '/beside', 'w').write('x')",
    "fork": "in_child(lambda: open(PLACE + '/file', 'w').write('x'))",
    "multiprocessing-fork": "in_worker('fork', write, PLACE + '/file')",
    "multiprocessing-spawn": "in_worker('spawn', pathlib.Path(PLACE, 'file').write_text, 'x')",
    "ctypes-open": "f = LIBC.open((PLACE + '/file').encode(), 1 | 512, 0); LIBC.write(f, b'x', 1)",
    "ctypes-rename": "LIBC.rename((PLACE + '/file').encode(), (PLACE + '/other').encode())",
    "ctypes-chmod": "LIBC.chmod((PLACE + '/file').encode(), 0o777)",
    "ctypes-system": "LIBC.system(f'echo x > {PLACE}/file'.encode())",
    "inherited-descriptor": "[os.write(n, b'x') for n in range(3, 64) if PLACE in seen(f'/proc/self/fd/{n}')]",
    "reopened-descriptor": "open(f\"/proc/self/fd/{os.open(PLACE + '/file', os.O_RDONLY)}\", 'w').write('x')",
    "file-handler": "logging.FileHandler(PLACE + '/file').emit(logging.makeLogRecord({'msg': 'x'}))",
    "tempfile": "tempfile.NamedTemporaryFile(dir=PLACE, delete=False).write(b'x')",
    "temporary-folder": "tempfile.mkdtemp(dir=PLACE)",
    "zip": "import zipfile\nzipfile.ZipFile(PLACE + '/file', 'w').writestr('a', 'x')",
    "gzip": "import gzip\ngzip.open(PLACE + '/file', 'wb').write(b'x')",
    "file-io": "import io\nio.FileIO(PLACE + '/file', 'w').write(b'x')",
    "makedirs": "os.makedirs(PLACE + '/a/b/c')",
    "mkfifo": "os.mkfifo(PLACE + '/fifo')",
    "extended-attributes": "os.setxattr(PLACE + '/file', 'user.x', b'x')",
    "unmount": "subprocess.run(['umount', '-l', '/tmp']); LIBC.umount2(b'/', 2)",
    "mount": "LIBC.mount(PLACE.encode(), b'/mnt', None, 4096, None)",
    "remount": "LIBC.mount(None, b'/', None, 4096 | 32, None)",
    "own-namespaces": "subprocess.run(['unshare', '-Urm', 'sh', '-c', f'umount -a; echo x > {PLACE}/file'])",
    "enter-namespaces": "os.system(f'nsenter -t {OUTSIDE} -m -U sh -c \"echo x > {PLACE}/file\"')",
    "kill-outside": "os.kill(OUTSIDE, 9)",
    "kill-all-by-shell": "os.system(f'kill -9 {OUTSIDE}')",
}  # fmt: skip

SCRIPT = """
import ctypes, json, logging, mmap, multiprocessing as mp, os, pathlib, shutil, sqlite3, subprocess, sys, tempfile
import numpy, torch
LIBC = ctypes.CDLL(None, use_errno=True)
with open(sys.argv[1]) as file:
    order = json.load(file)
def in_child(call):
    child = os.fork()
    if not child:
        try:
            call()
        finally:
            os._exit(1)
    os.waitpid(child, 0)
def in_worker(kind, call, argument):
    worker = mp.get_context(kind).Process(target=call, args=(argument,))
    worker.start()
    worker.join()
def seen(path):
    return os.path.realpath(path)
def write(path):
    open(path, "w").write("x")
for name, code in order["ways"].items() if __name__ == "__main__" else ():
    try:
        scope = dict(globals(), PLACE=order["places"][name], OUTSIDE=order["outside"], SCRIPT_FOLDER=order["script"])
        if name.startswith("home-"):
            os.environ["HOME"] = order["places"][name]
        here = os.getcwd()
        try:
            exec(compile(code, __file__, "exec"), scope)
        finally:
            os.chdir(here)
    except BaseException as error:
        answer = type(error).__name__ + ": " + str(error)
    else:
        answer = "went through"
    print("WAY", name, answer, flush=True)
print("END", flush=True)
"""
