"""TaskFlow: tasks, variables and prompts of an agentic program, and what follows from them."""

from grape_lc.flow.events import (
    FlowEvent,
    FlowResult,
    ProgramFinished,
    TaskFinished,
    TaskStarted,
    TokenEvent,
    TokenUsage,
)
from grape_lc.flow.explain import Explanation
from grape_lc.flow.lowering import Edge, MicroTask, MicroTaskGraph, lower
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.targets import Targets
from grape_lc.flow.taskflow import FlowRunner, Task, TaskFlow
from grape_lc.flow.template import (
    Literal_,
    MessageTemplate,
    PromptLike,
    PromptTemplate,
    Segment,
    Slot,
    StaticRun,
    literal_to_template,
    parse_template,
)
from grape_lc.flow.transducers import (
    TRANSDUCERS,
    Transducer,
    TransducerStream,
    parse_transducer,
)
from grape_lc.flow.variables import (
    InputVar,
    IntermediateVar,
    NewestVar,
    OutputVar,
    Variable,
)

__all__ = [
    "TRANSDUCERS",
    "Edge",
    "Explanation",
    "FlowEvent",
    "FlowResult",
    "FlowRunner",
    "InputVar",
    "IntermediateVar",
    "Literal_",
    "MessageTemplate",
    "MicroTask",
    "MicroTaskGraph",
    "NewestVar",
    "OutputVar",
    "ProgramFinished",
    "PromptLike",
    "PromptTemplate",
    "Sampling",
    "Segment",
    "Slot",
    "StaticRun",
    "Targets",
    "Task",
    "TaskFinished",
    "TaskFlow",
    "TaskStarted",
    "TokenEvent",
    "TokenUsage",
    "Transducer",
    "TransducerStream",
    "Variable",
    "literal_to_template",
    "lower",
    "parse_template",
    "parse_transducer",
]
