"""The mechanism of the sandbox: an audit hook that denies effects and writes them down.

It is for honest programs: it keeps a traced node from sending, writing and starting what it would
in a real run. Code that is out to escape it can, and so can C code that raises no audit event. It
cannot be taken off: it is only ever installed in the process of ``sandbox_child``.
"""

from __future__ import annotations

import contextvars
import os
import sys
import threading
from collections.abc import Iterable
from typing import Any

from grape_lc.adapters.callsite import current_call_site
from grape_lc.adapters.flow_file import Effect
from grape_lc.adapters.sandbox_frames import actor
from grape_lc.adapters.sandbox_policy import RULES, Fence, Verdict, verdict
from grape_lc.adapters.sandbox_protocol import readable

_MOST = 500  # effects that are kept: a loop without end must not fill the memory

running_at: contextvars.ContextVar[str | None] = contextvars.ContextVar(
    "grape_lc_running_at", default=None
)
"""``file:line`` of the user's code for which tasks and threads of this context work."""


class Denied(BaseException):
    """A node tried what it may not. Not an Exception: ``except Exception`` must not hide it."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(f"denied: {effect}")
        self.effect = effect


class DeniedAtImportError(PermissionError):
    """As Denied, before the run: a module may go on without, as when a service is down."""

    def __init__(self, effect: Effect) -> None:
        super().__init__(f"denied: {effect}")
        self.effect = effect


class Guard:
    """Judges the audit events of this process. Usable from any thread.

    fence: where files may be written. folder: the user's, from which files are named.
    allowed: kinds of effects that are let be in silence.
    """

    def __init__(self, fence: Fence, folder: str, allowed: Iterable[str] = ()) -> None:
        self._fence = fence
        self._folder = folder
        self._allowed = frozenset(allowed)
        self._importing = True
        self._seen: dict[tuple[Verdict, Effect], None] = {}
        self._lock = threading.RLock()

    def install(self) -> None:
        """From here on, until the process ends."""
        sys.addaudithook(self._hook)

    def run_begins(self) -> None:
        """The graph is there: what is denied from here on ends the node."""
        self._importing = False

    def effects(self, kind: Verdict) -> tuple[Effect, ...]:
        """What was seen and got this verdict, each once, in an order of its own."""
        with self._lock:
            found = [effect for seen, effect in self._seen if seen is kind]
        return tuple(sorted(found, key=lambda e: (e.node or "", e.kind, e.event, e.what, e.where)))

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        rule = RULES.get(event)
        if rule is None or rule.kind in self._allowed:
            return
        what = rule.look(args, self._fence)
        if what is not None:
            self._judge(rule.kind, event, what)

    def _judge(self, kind: str, event: str, what: str) -> None:
        who = actor(self._folder)
        by_user = who.by_user and not (kind == "thread" and who.executor)
        decided = verdict(kind, by_user=by_user, at_import=self._importing)
        if decided is Verdict.ALLOW:
            return
        site = current_call_site()
        effect = Effect(
            node=None if site is None else site.name(),
            kind=kind,
            event=event,
            what=readable(self._shown(what)),
            where=readable(who.user or running_at.get() or who.library or "unknown"),
        )
        with self._lock:
            if len(self._seen) < _MOST:
                self._seen[decided, effect] = None
        if decided is Verdict.DENY:
            raise (DeniedAtImportError if self._importing else Denied)(effect)

    def _shown(self, what: str) -> str:
        """A path in the user's folder as it is named from there."""
        inner = what.removeprefix(self._folder + os.sep)
        return inner or "."
