"""Where learned prompts are kept between processes.

By default in a file of the cache folder, one for each graph and version of its code, that has no
text of a prompt: the order of roles, literal texts and values, names of tasks and inputs, and of
each literal text its size and a salted hash. A file that the user names has the texts too.

    {"format": "grape-lc learned prompts", "version": 1, "graph": "coder", "source": "9f2c...",
     "content": false, "salt": "51aa...",
     "tasks": {"plan": {"messages": [
       ["user", [{"size": 16, "sha256": "77b1..."}, {"input": "problem"}]]]}}}

Files are replaced as a whole: of processes that write at the same time the last one wins. A file
that cannot be used is left alone until there is something new to write.
"""

from __future__ import annotations

import atexit
import json
import logging
import secrets
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grape_lc.adapters.outlines import Lesson, Outlines, lesson_from_plain, lesson_to_plain
from grape_lc.config import graph_file
from grape_lc.files import write_whole
from grape_lc.strict_json import read_bytes, read_json

logger = logging.getLogger(__name__)

FORMAT = "grape-lc learned prompts"
VERSION = 1
"""Of the file's form."""

_PAUSE_S = 1.0  # from what a run taught to its writing

_waiting: set[TemplateStore] = set()


@atexit.register
def _write_all() -> None:
    for store in tuple(_waiting):
        store.wait()


def learned_path(graph: str, source: str) -> Path:
    """Where a graph's outlines are kept; a change of its code makes it another file.

    Raises ConfigError where there is no folder for a cache.
    """
    return graph_file(graph, source, ".json")


class TemplateStore:
    """The file of one graph. Usable from any thread.

    graph: its name. source: hash of its code (``source_hash``). content: write texts, too.
    """

    def __init__(self, path: Path, graph: str, source: str, *, content: bool) -> None:
        self.path = path
        self._graph = graph
        self._source = source
        self._content = content
        self._salt = secrets.token_hex(16)
        self._written: str | None = None
        self._wanted: dict[str, Lesson] | None = None
        self._timer: threading.Timer | None = None
        self._failed = False
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def load(self) -> Outlines | None:
        """What is in the file. None if there is none, or, with a warning, if it is not usable."""
        for store in [store for store in tuple(_waiting) if store.path == self.path]:
            store.wait()
        try:
            text = self._text()
            outlines = None if text is None else self._read(read_json(text))
        except (OSError, LookupError, TypeError, ValueError, RecursionError) as error:
            logger.warning("learned prompts in %s are not used: %s", self.path, error)
            return None
        if outlines is not None:
            # Hidden texts that no run has shown yet are written again as they are.
            self._salt = outlines.salt
            self._written = text
        return outlines

    def save_soon(self, lessons: Mapping[str, Lesson]) -> None:
        """Write these in place of what is in the file, on a thread that nobody waits for.

        What comes in quick succession is written together, at the latest when the process ends.
        Trouble is logged, once, and then nothing is written any more.
        """
        with self._lock:
            if self._failed:
                return
            self._wanted = dict(lessons)
            # A process that was forked meanwhile has the timer, but not its thread.
            if self._timer is not None and self._timer.is_alive():
                return
            self._timer = threading.Timer(_PAUSE_S, self.wait)
            self._timer.daemon = True
            _waiting.add(self)
            try:
                self._timer.start()
                return
            except RuntimeError:  # the interpreter is ending: no thread can be started
                self._timer = None
        self.wait()

    def wait(self) -> None:
        """Write now what is to be written, if anything is; return when that is done."""
        with self._writing:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                _waiting.discard(self)
                if wanted is None or self._failed:
                    return
            try:
                self._write(wanted)
            except Exception as error:  # noqa: BLE001 - a run must not fail for what it taught
                with self._lock:
                    self._failed = True
                logger.warning("learned prompts are not kept in %s: %r", self.path, error)

    # -- inside -----------------------------------------------------------------------------

    def _text(self) -> str | None:
        try:
            return read_bytes(self.path).decode("utf-8")
        except FileNotFoundError:
            return None

    def _read(self, content: Any) -> Outlines:
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError("it holds something else")
        if content["version"] != VERSION:
            raise ValueError(f"its version is {content['version']!r}, this reads {VERSION}")
        if content["source"] != self._source:
            raise ValueError(f"it is of another graph, or of other code, than {self._graph!r}")
        salt = content["salt"]
        if not isinstance(salt, str) or not salt:
            raise ValueError("it has no salt")
        tasks = content["tasks"]
        if not isinstance(tasks, dict) or not all(task.strip() for task in tasks):
            raise ValueError("its tasks have no names")
        return Outlines(salt, {task: lesson_from_plain(plain) for task, plain in tasks.items()})

    def _write(self, lessons: Mapping[str, Lesson]) -> None:
        salt = None if self._content else self._salt
        content = {
            "format": FORMAT,
            "version": VERSION,
            "graph": self._graph,
            "source": self._source,
            "content": self._content,
            "salt": self._salt,
            "tasks": {
                task: lesson_to_plain(lesson, salt) for task, lesson in sorted(lessons.items())
            },
        }
        text = json.dumps(content, indent=1)
        if text == self._written:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, text)  # for its owner's eyes only
        self._written = text
