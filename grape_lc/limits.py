"""How large things may be that come from outside: files, flows, prompts, calls, messages.

Each limit is far above what anybody needs, and low enough that what it lets through is read in
seconds and in some hundred megabytes. One that is in the way is raised by an environment variable,
``GRAPE_MOST_FLOW_TASKS=4000``, which the engine's processes inherit.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from grape_lc.errors import ConfigError, GrapeError


@dataclass(frozen=True, slots=True)
class Limit:
    """The most of something. ``GRAPE_MOST_<name>`` in the environment overrides it.

    unit: what is counted.
    """

    name: str
    default: int
    unit: str

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return f"GRAPE_MOST_{self.name}"

    @property
    def value(self) -> int:
        """What holds now. Raises ConfigError for a variable that is no positive number."""
        given = os.environ.get(self.variable)
        if given is None:
            return self.default
        if given.isascii() and given.isdigit() and len(given) < 19 and int(given) > 0:
            return int(given)
        raise ConfigError(f"{self.variable}={given!r:.60} is no number of {self.unit} above 0")

    def check(self, count: int, what: str, error: type[GrapeError]) -> None:
        """Raise ``error``, with ``what`` in front, if ``count`` is more than the limit."""
        if count > self.value:
            raise error(f"{what}: {self.excess(count)}")

    def excess(self, count: int) -> str:
        """What to say of a count that is too large."""
        return (
            f"{count} {self.unit}, more than the limit of {self.value} ({self.variable}=N allows N)"
        )


# -- files, and JSON in any text ----------------------------------------------------------------

# Flows, learned prompts, savings, profiles: read as a whole, into some ten times their size.
FILE_BYTES = Limit("FILE_BYTES", 16 << 20, "bytes")
# Results of measurements hold every token's time; their owner made them.
RESULT_BYTES = Limit("RESULT_BYTES", 2 << 30, "bytes")
# Below the depth at which any of the libraries that handle the values gives up (about 250).
JSON_DEPTH = Limit("JSON_DEPTH", 100, "levels")
# What is refused is told value by value, at a kilobyte or so for each.
JSON_VALUES = Limit("JSON_VALUES", 250_000, "values")

# -- flows --------------------------------------------------------------------------------------

# The host looks through all tasks for each prompt that it opens. A Send to 500 items is 500 tasks.
FLOW_TASKS = Limit("FLOW_TASKS", 1024, "tasks")
FLOW_VARIABLES = Limit("FLOW_VARIABLES", 4096, "variables")
# Texts that prompts read, those behind a NewestVar counted one by one.
FLOW_READS = Limit("FLOW_READS", 16_384, "texts that prompts read")
# A text of a template, an input, all texts of a call: a million tokens, which is tokenised within
# seconds, on the thread that serves all calls.
TEXT_CHARS = Limit("TEXT_CHARS", 4 << 20, "characters")
# Messages, literal texts and slots of one prompt.
PROMPT_PIECES = Limit("PROMPT_PIECES", 16_384, "messages, texts and slots")
# Transducers of one slot: each costs something for every piece of an answer.
SLOT_STAGES = Limit("SLOT_STAGES", 16, "transducers")
PATH_PARTS = Limit("PATH_PARTS", 64, "parts of a path")

# -- calls --------------------------------------------------------------------------------------

CALL_MESSAGES = Limit("CALL_MESSAGES", 16_384, "messages")
CALL_TOOLS = Limit("CALL_TOOLS", 1024, "tools")
# Each is looked for in every piece of the answer.
STOP_TEXTS = Limit("STOP_TEXTS", 256, "stop texts")
# Names of programs, tasks, variables, tenants and flows; the scheduler keeps them.
NAME_CHARS = Limit("NAME_CHARS", 1024, "characters")

# -- what is kept at a time -----------------------------------------------------------------------

# Prompts of one run: those that are called first. A map step as wide as this gets all of them.
PROGRAM_PROMPTS = Limit("PROGRAM_PROMPTS", 256, "open prompts of one program")
ENGINE_PROMPTS = Limit("ENGINE_PROMPTS", 4096, "open prompts of one engine")
# Each keeps its flow and its texts until it ends.
ENGINE_PROGRAMS = Limit("ENGINE_PROGRAMS", 4096, "programs of one engine")

# -- between the processes ------------------------------------------------------------------------

# A call of TEXT_CHARS characters, escaped, with room for its tools.
LINE_BYTES = Limit("LINE_BYTES", 64 << 20, "bytes of one message")
