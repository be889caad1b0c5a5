"""Every exception that grape_lc raises on purpose.

    GrapeError
    ├── ConfigError (ValueError)
    │   └── ModelNotFoundError
    ├── FlowError (ValueError)
    │   ├── FlowFormatError         data for a flow or a part of it has the wrong form
    │   ├── PromptSyntaxError       a prompt template does not parse, or is empty
    │   ├── UnknownVariableError    a task names a variable that was not declared
    │   ├── DuplicateNameError      a variable or a task is declared twice
    │   ├── WrittenTwiceError       two tasks write one variable
    │   ├── NeverWrittenError       an intermediate or output variable has no task
    │   ├── NeverReadError          an input or intermediate variable is not used
    │   ├── CycleError              tasks wait for each other
    │   ├── FlowInputError          the inputs of a run do not fit the flow
    │   └── TransducerError         a value does not fit the transducer of a slot
    ├── RequestError (ValueError)
    │   ├── EmptyPromptError        no messages, or no tokens
    │   ├── PromptTooLongError      the prompt does not fit the model
    │   └── UnsupportedRequestError the engine cannot serve this request correctly
    ├── EngineError (RuntimeError)
    │   ├── EngineStartError        the engine did not come up
    │   ├── EngineDiedError         the engine ended while calls were in flight (ConnectionError)
    │   ├── EngineClosedError       the engine was closed by its owner
    │   ├── WireError               a message between the processes cannot be read
    │   ├── CallTimeoutError        the call took longer than its caller allowed
    │   └── CallFailedError         the engine failed this call; others go on
    └── TraceError (RuntimeError)   a graph could not be traced to a TaskFlow

A message names the ids and values concerned and, where there are any, the alternatives.
"""

from __future__ import annotations


class GrapeError(Exception):
    """Base of all errors of this package."""


class ConfigError(GrapeError, ValueError):
    """A setting is missing, unknown or contradicts another."""


class ModelNotFoundError(ConfigError):
    """The model is neither a local path nor a name that can be loaded here."""


class FlowError(GrapeError, ValueError):
    """A TaskFlow is not well formed."""


class FlowFormatError(FlowError):
    """Data given for a flow, a task, a prompt or a variable has the wrong form."""


class PromptSyntaxError(FlowError):
    """A prompt template does not parse, or holds no text at all."""


class UnknownVariableError(FlowError):
    """A task refers to a variable that was not declared."""


class DuplicateNameError(FlowError):
    """A variable or a task with this name exists already."""


class WrittenTwiceError(FlowError):
    """Two tasks write the same variable."""


class NeverWrittenError(FlowError):
    """No task writes an intermediate or output variable."""


class NeverReadError(FlowError):
    """No prompt reads an input or intermediate variable."""


class CycleError(FlowError):
    """Tasks wait for each other's output."""


class FlowInputError(FlowError):
    """The inputs of a run do not fit the flow's input variables."""


class TransducerError(FlowError):
    """A value is not of the form that a slot's transducer needs."""


class RequestError(GrapeError, ValueError):
    """A call cannot be served as it was asked."""


class EmptyPromptError(RequestError):
    """The call has no messages, or its prompt has no tokens."""


class PromptTooLongError(RequestError):
    """The prompt, or prompt and output, exceed what the model can hold."""


class UnsupportedRequestError(RequestError):
    """The engine, as it is configured, would answer this request wrongly."""


class EngineError(GrapeError, RuntimeError):
    """The engine is not able to serve."""


class EngineStartError(EngineError):
    """The engine did not come up; the message carries the end of its log."""


class EngineDiedError(EngineError, ConnectionError):
    """The engine ended while calls were in flight; the next use starts a new one.

    A ConnectionError, since that is what code that tries again looks for: LangGraph's retry policy
    does so unless it is told otherwise.
    """


class EngineClosedError(EngineError):
    """The engine was closed by its owner."""


class WireError(EngineError):
    """A message between the user's process and the engine's cannot be read."""


class CallTimeoutError(EngineError, TimeoutError):
    """The call took longer than its caller allowed, and was cancelled in the engine."""


class CallFailedError(EngineError):
    """The engine failed this one call; other calls go on."""


class TraceError(GrapeError, RuntimeError):
    """A graph could not be traced to a TaskFlow."""
