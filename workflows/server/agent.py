"""The software team of ``workflows/code.py`` as a server offers it, attached to the engine.

``langgraph dev`` in this folder serves ``graph``. It is attached when the server loads this file,
once, so that its runs share what was learned and one engine, which starts at the first call.
"""

from __future__ import annotations

from grape_lc import ChatGrape, attach
from grape_lc.workflow_package import load_workflow

llm = ChatGrape(temperature=0, max_tokens=200)
graph = attach(load_workflow("code").build(llm))
