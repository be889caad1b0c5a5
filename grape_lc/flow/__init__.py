"""TaskFlow: tasks, variables and prompts of an agentic program, and what follows from them."""

from grape_lc.flow._model import FlowFormatError
from grape_lc.flow.events import (
    FlowEvent,
    FlowResult,
    ProgramFinished,
    TaskFinished,
    TaskStarted,
    TokenEvent,
    TokenUsage,
)
from grape_lc.flow.sampling import Sampling
from grape_lc.flow.taskflow import FlowRunner, Task, TaskFlow, UnknownTaskError
from grape_lc.flow.template import (
    TRANSDUCERS,
    Literal_,
    MessageTemplate,
    PromptLike,
    PromptTemplate,
    Segment,
    Slot,
    Transducer,
    TransducerStream,
    literal_to_template,
    parse_template,
)
from grape_lc.flow.variables import InputVar, IntermediateVar, OutputVar, Variable

__all__ = [
    "TRANSDUCERS",
    "FlowEvent",
    "FlowFormatError",
    "FlowResult",
    "FlowRunner",
    "InputVar",
    "IntermediateVar",
    "Literal_",
    "MessageTemplate",
    "OutputVar",
    "ProgramFinished",
    "PromptLike",
    "PromptTemplate",
    "Sampling",
    "Segment",
    "Slot",
    "Task",
    "TaskFinished",
    "TaskFlow",
    "TaskStarted",
    "TokenEvent",
    "TokenUsage",
    "Transducer",
    "TransducerStream",
    "UnknownTaskError",
    "Variable",
    "literal_to_template",
    "parse_template",
]
