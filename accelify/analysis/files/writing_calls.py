"""Which calls write: folders, pictures, files, logs, lines on the screen; and what each of them writes."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.fetch_options import asks_to_download
from accelify.analysis.data.fetches import is_download
from accelify.analysis.files.array_files import dumps_to_file
from accelify.analysis.files.effect_sites import (
    ASKING,
    DOWNLOADS,
    FILES,
    FOLDERS,
    LOGS,
    PICTURES,
    TERMINAL,
    gives_text,
    makes_folder_again,
    prints_beside,
)
from accelify.analysis.files.log_files import BEGUN_LOGS, begins_log, by_default
from accelify.analysis.files.renderings import RENDERING, renders
from accelify.analysis.files.shell import run_for_all, writes_by_shell
from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.metrics.stored_state import class_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import call_argument, dotted, is_constant, walk
from accelify.analysis.values import Class, Entity

_FOLDERS = frozenset("os.makedirs os.mkdir os.rmdir os.removedirs distutils.dir_util.mkpath".split())
_PICTURES = frozenset(
    """matplotlib.pyplot.savefig matplotlib.pyplot.show matplotlib.pyplot.imsave pylab.savefig pylab.show
    torchvision.utils.save_image imageio.mimsave imageio.mimwrite imageio.imwrite imageio.imsave cv2.imwrite cv2.imshow
    scipy.misc.imsave skimage.io.imsave plotly.io.write_image plotly.io.write_html plotly.offline.plot
    plotly.plotly.plot matplotlib.image.imsave torchvision.io.write_png torchvision.io.write_jpeg
    torchvision.io.write_video imageio.v2.mimsave imageio.v2.imwrite imageio.v2.imsave imageio.v3.imwrite""".split()
)
_FILES = frozenset(
    """os.remove os.unlink os.rename os.replace os.symlink os.link shutil.copy shutil.copyfile shutil.copy2
    shutil.move shutil.rmtree shutil.copytree shutil.make_archive distutils.dir_util.copy_tree json.dump pickle.dump
    _pickle.dump cPickle.dump dill.dump cloudpickle.dump yaml.dump yaml.safe_dump toml.dump marshal.dump numpy.save
    numpy.savez numpy.savez_compressed numpy.savetxt joblib.dump scipy.io.savemat scipy.sparse.save_npz
    torch.onnx.export torch.onnx._export torch.jit.save torch.export.save safetensors.torch.save_file
    safetensors.torch.save_model torchaudio.save soundfile.write librosa.output.write_wav scipy.io.wavfile.write
    tensorboard_logger.configure tensorboard_logger.log_value tensorboard_logger.log_images
    tensorboard_logger.log_histogram tensorboard_logger.tensorboard_logger.configure
    tensorboard_logger.tensorboard_logger.log_value""".split()
)
_TERMINAL = ASKING | {"sys.stdout.write", "sys.stdout.flush", "sys.stderr.write", "sys.stderr.flush"}
# What a statement that does nothing else is put under a guard for.
WRITING = _FOLDERS | _PICTURES | _FILES | _TERMINAL
_PICTURE_METHODS = frozenset("savefig write_html write_image write_videofile write_gif".split())
_FILE_METHODS = frozenset(
    "to_csv to_json to_pickle to_excel to_parquet to_hdf tofile write_text write_bytes save_pretrained push_to_hub "
    "unlink".split()
)
# Methods that write, by name alone: few enough, and rarely anything else.
WRITING_METHODS = _PICTURE_METHODS | _FILE_METHODS | {"mkdir"}
# What writes to something that was opened before. Too common a word to guard a statement for it alone.
_STREAM_METHODS = frozenset("write writelines writerow writerows writeheader write_line".split())
_BUFFERS = frozenset({"io.BytesIO", "io.StringIO", "BytesIO", "StringIO", "tempfile.SpooledTemporaryFile"})
# A folder or a file of the process alone.
_TEMPORARY = frozenset(
    "tempfile.mkdtemp tempfile.mktemp tempfile.TemporaryDirectory tempfile.NamedTemporaryFile".split()
)
_FARTHEST = 4
OPENING = frozenset(
    "builtins.open io.open codecs.open gzip.open bz2.open lzma.open zipfile.ZipFile tarfile.open gzip.GzipFile "
    "bz2.BZ2File lzma.LZMAFile h5py.File".split()
)
_OPENING_WITH_A_MODE = OPENING | BEGUN_LOGS
_NOWHERE = ("os.devnull", "os.path.devnull", "devnull")


class WritingCalls:
    """Asks what the calls of a program write.

    Args:
        interpreter: of the program.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter

    def kind_of(self, module: Module, scope: Scope, call: ast.Call, name: str, attribute: str) -> str | None:
        """The kind of what a call writes, None where it writes nothing.

        Args:
            module: the module of the call.
            scope: the same.
            call: the call.
            name: the qualified name of its function, "" where that is no library's.
            attribute: the method that it calls, "" where it calls none.
        """
        if name in _FOLDERS or (attribute == "mkdir" and not name):
            return None if makes_folder_again(call) else FOLDERS
        if gives_text(call, name or attribute):
            return None
        if name in _PICTURES or attribute in _PICTURE_METHODS:
            return PICTURES
        if attribute in RENDERING and renders(self.interpreter.evaluate(module, scope, call.func.value)):  # type: ignore[attr-defined]
            return PICTURES
        if (
            name in _FILES
            or attribute in _FILE_METHODS
            or name == "torch.save"
            or writes_by_shell(call, name, scope)
        ):
            return FILES
        if name in _TERMINAL or name in ("builtins.print", "tqdm.write", "tqdm.tqdm.write"):
            return TERMINAL
        if run_for_all(call, name, scope):
            return TERMINAL  # what it writes, if anything, cannot be seen
        callees = self.interpreter.calls.get(call, set())
        if prints_beside(call, name, attribute, bool(callees)):
            return TERMINAL
        asked = asks_to_download(module.tree, module.scopes.of, call) and all(map(self._hands_up, callees))
        if is_download(call, name) or asked:
            return DOWNLOADS
        if name in k.WRITER_CLASSES or name.startswith(("wandb.", "mlflow.", "tensorboard_logger.")):
            return LOGS
        if name in _OPENING_WITH_A_MODE:
            stated = by_default(call, scope)
            if begins_log(stated, name) is not None:
                return LOGS
            if opens_for_writing(stated, name) is not None:
                mode = call_argument(stated, 1, "mode")
                return LOGS if isinstance(mode, ast.Constant) and "a" in str(mode.value) else FILES
        if isinstance(call.func, ast.Attribute):
            # A stream takes one argument: `memory.write(row, erase, add)` is none.
            if attribute in _STREAM_METHODS and len(call.args) < 2:
                return None if self._is_buffer(module, scope, call.func.value) else LOGS
            if attribute == "save" and call.args and not self.interpreter.calls.get(call):
                return FILES
            if attribute.startswith("add_") and self._is_writer(module, scope, call.func.value):
                return LOGS
            if not name and dumps_to_file(call):
                return FILES
            if attribute == "open" and not name and _writing_mode(call_argument(call, 0, "mode")):
                return FILES
        return None

    def into_memory(self, module: Module, scope: Scope, call: ast.Call) -> bool:
        """Whether a call writes into memory, `plt.savefig(buffer)`, or to a temporary folder of the process."""
        places = [*call.args[:2], *[kw.value for kw in call.keywords]]
        return any(
            self._is_buffer(module, scope, a) or self._is_temporary(module, scope, a, _FARTHEST)
            for a in places
        )

    def _is_temporary(self, module: Module, scope: Scope, node: ast.expr, left: int) -> bool:
        """Whether a path is made of `tempfile.mkdtemp()`, through some names at most."""
        for one in walk(node):
            if not isinstance(one, (ast.Name, ast.Call)):
                continue
            contained = self.interpreter.evaluate(module, scope, one)
            if any(isinstance(made, Entity) and made.qualname in _TEMPORARY for made in contained):
                return True
            value = _bound_once(scope, one) if isinstance(one, ast.Name) and left else None
            if value is not None and self._is_temporary(module, scope, value, left - 1):
                return True
        return False

    def _is_buffer(self, module: Module, scope: Scope, node: ast.expr) -> bool:
        return isinstance(node, (ast.Name, ast.Attribute, ast.Call)) and any(
            isinstance(contained, Entity) and contained.qualname in _BUFFERS
            for contained in self.interpreter.evaluate(module, scope, node)
        )

    def _is_writer(self, module: Module, scope: Scope, node: ast.expr) -> bool:
        contained = self.interpreter.evaluate(module, scope, node)
        return any(isinstance(writer, Entity) and writer.kind == v.WRITER for writer in contained)

    def _hands_up(self, callee: Scope) -> bool:
        """Whether the `__init__` of a library's subclass takes options by `**kwargs`, which are the library's."""
        node, owner = callee.node, class_of(callee)
        cls = self.interpreter.entities.get((owner.node, "class")) if owner is not None else None
        init = isinstance(node, ast.FunctionDef) and node.name == "__init__" and node.args.kwarg is not None
        return init and isinstance(cls, Class) and bool(cls.external_bases())


def _bound_once(scope: Scope, name: ast.Name) -> ast.expr | None:
    """What a name of a function is assigned, or what a `with` gives it: `with TemporaryDirectory() as folder:`."""
    entered = [
        item.context_expr
        for stmt in scope.of_type(ast.With)
        for item in stmt.items
        if isinstance(item.optional_vars, ast.Name) and item.optional_vars.id == name.id
    ]
    return entered[0] if len(entered) == 1 else assigned_once(scope, name)


def opens_for_writing(call: ast.Call, name: str | None) -> ast.expr | None:
    """The file that a call opens for writing, None where it opens none."""
    if name not in OPENING or not _writing_mode(call_argument(call, 1, "mode")):
        return None
    for given in (call_argument(call, 0, keyword) for keyword in ("file", "filename", "name")):
        if given is not None:
            return None if dotted(given) in _NOWHERE or is_constant(given, "/dev/null") else given
    return None


def _writing_mode(mode: ast.expr | None) -> bool:
    if isinstance(mode, ast.Constant):
        return isinstance(mode.value, str) and any(c in mode.value for c in "wax")
    if isinstance(mode, ast.IfExp):
        return _writing_mode(mode.body) or _writing_mode(mode.orelse)
    return False
