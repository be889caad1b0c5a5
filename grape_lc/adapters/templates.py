"""What is known of a graph's prompts, from all sources, and what becomes of it from run to run.

Of each task the first source that has it is believed: declared, traced, learned (merging.py). One
that is wrong again and again is not:

    a declared or traced template       in each run      what follows
    right, or right for a quarter       misses := 0      it stays
    wrong within the first quarter      misses += 1      at MISSES it is set aside in this process:
                                                         the next source's takes its place
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from grape_lc.adapters.foretold import Expected, Foretold
from grape_lc.adapters.learning import LITTLE, MISSES, Learner, SeenCall
from grape_lc.adapters.merging import Layer, Merged, Source, merge
from grape_lc.adapters.template_store import TemplateStore
from grape_lc.flow.taskflow import TaskFlow

logger = logging.getLogger(__name__)


class Templates:
    """The flow that runs of a graph are expected to follow. Usable from any thread.

    name: of the flow. layers: declared and traced templates, those that win first.
    learner: watches runs; None: nothing is learned, and no template is set aside.
    store: where the learner's lessons are kept; None: nowhere.
    """

    def __init__(
        self,
        name: str,
        layers: Sequence[Layer] = (),
        learner: Learner | None = None,
        store: TemplateStore | None = None,
    ) -> None:
        self.name = name
        self._layers = tuple(layers)
        self._learner = learner
        self._store = store
        self._misses: Counter[tuple[Source, str]] = Counter()
        self._aside: set[tuple[Source, str]] = set()
        self._learned: TaskFlow | None = None
        self._lock = threading.Lock()
        self._merged = self._merge()

    @property
    def flow(self) -> TaskFlow | None:
        """What a run is expected to do; None: nothing is known yet."""
        return self._now().flow

    @property
    def sources(self) -> Mapping[str, Source]:
        """Who says what a task of the flow is sent."""
        return dict(self._now().sources)

    def untaught(self) -> Templates:
        """The same declared and traced templates, which no run has taught anything; not stored."""
        learner = None if self._learner is None else Learner(self.name)
        return Templates(self.name, self._layers, learner)

    def watch(
        self,
        inputs: Mapping[str, str],
        calls: Sequence[SeenCall],
        earlier: Mapping[str, str] | None = None,
    ) -> None:
        """A run has come to its end: learn from it, and judge by it; see ``Learner.watch``."""
        if self._learner is None:
            return
        self._judge(inputs, calls, earlier or {})
        if self._learner.watch(inputs, calls, earlier) and self._store is not None:
            self._store.save_soon(self._learner.lessons)

    # -- inside -----------------------------------------------------------------------------

    def _now(self) -> Merged:
        with self._lock:
            if self._learner is not None and self._learner.flow is not self._learned:
                self._merged = self._merge()
            return self._merged

    def _merge(self) -> Merged:
        layers = [
            layer.without({task for source, task in self._aside if source == layer.source})
            for layer in self._layers
        ]
        self._learned = None if self._learner is None else self._learner.flow
        if self._learned is not None:
            layers.append(Layer.of("learned", self._learned))
        return merge(self.name, layers)

    def _judge(
        self, inputs: Mapping[str, str], calls: Sequence[SeenCall], earlier: Mapping[str, str]
    ) -> None:
        """Count the misses of what was declared or traced, and set aside what keeps missing."""
        now = self._now()
        if now.flow is None or not set(now.sources.values()) - {"learned"}:
            return
        expected = Expected(now.flow, inputs, earlier)
        for call in calls:
            source = now.sources.get(call.task)
            if source is not None and source != "learned":
                match = expected.match(call.task, call.sent, call.tools)
                if match is not None:
                    self._count(source, call.task, match)
            expected.answered(call.task, call.answer)

    def _count(self, source: Source, task: str, match: Foretold) -> None:
        key = (source, task)
        with self._lock:
            if match.differs is None or match.share >= LITTLE:
                del self._misses[key]
                return
            self._misses[key] += 1
            if self._misses[key] < MISSES or key in self._aside:
                return
            self._aside.add(key)
            self._merged = self._merge()
        message, character = match.differs
        logger.warning(
            "flow %r: in %d runs in a row the %s prompt of task %r was wrong, the last time from "
            "message %d, character %d on; it is set aside in this process, and what the graph's "
            "runs show takes its place",
            self.name,
            MISSES,
            source,
            task,
            message,
            character,
        )
