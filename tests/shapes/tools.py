"""Agents that call tools."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from grape_lc import ChatGrape
from tests.shapes.shape import Shape, runs


@tool
def weather(city: str) -> str:
    """Get the weather in a city."""
    return f"It is {10 + len(city) % 20} degrees in {city}."


@tool
def population(city: str) -> str:
    """Get the number of people who live in a city."""
    return f"{city} has {1000 * len(city)} inhabitants."


def tool_node(llm: ChatGrape) -> Any:
    """``ToolNode`` and ``tools_condition``: the loop of an agent from LangGraph's parts."""
    tools = [weather, population]
    bound = llm.bind_tools(tools)

    def agent(state: MessagesState) -> Any:
        system = SystemMessage("You answer questions about cities. Use your tools, once.")
        return {"messages": [bound.invoke([system, *state["messages"]])]}

    def shorten(state: MessagesState) -> Any:
        text = str(state["messages"][-1].content)
        return {"messages": [llm.invoke(f"Say this in one sentence:\n{text.strip()}")]}

    builder = StateGraph(MessagesState).add_node("agent", agent)
    builder.add_node("tools", ToolNode(tools)).add_node("shorten", shorten)
    builder.add_edge(START, "agent").add_edge("tools", "agent")
    builder.add_conditional_edges("agent", tools_condition, {"tools": "tools", END: "shorten"})
    return builder.compile()


def tool_loop(llm: ChatGrape) -> Any:
    """A loop over calls of tools, written by hand, inside one node."""
    tools = {"weather": weather, "population": population}
    bound = llm.bind_tools([weather, population])

    def agent(state: MessagesState) -> Any:
        messages = list(state["messages"])
        while True:
            answer = bound.invoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                return {"messages": messages[len(state["messages"]) :]}
            for call in answer.tool_calls:
                result = tools[call["name"]].invoke(call["args"])
                messages.append(ToolMessage(result, tool_call_id=call["id"]))

    def check(state: MessagesState) -> Any:
        prompt = (
            f"Question: {state['messages'][0].content}\n"
            f"Answer: {state['messages'][-1].content}\nIs the question answered?"
        )
        return {"messages": [llm.invoke(prompt)]}

    builder = StateGraph(MessagesState).add_node("agent", agent).add_node("check", check)
    return builder.add_edge(START, "agent").add_edge("agent", "check").compile()


def agent(llm: ChatGrape) -> Any:
    """LangChain's own agent."""
    tools = [weather, population]
    return create_agent(llm, tools, system_prompt="You know about cities. Use your tools, once.")


_QUESTIONS = (
    {"messages": [("user", "Is it warm in Lisbon now?")]},
    {"messages": [("user", "How many people live in Ghent?")]},
    {"messages": [("user", 'Compare {Oslo} to "Rome", please.')]},
    {"messages": [("user", "Wie kalt ist es\nin Zürich?")]},
)

SHAPES = (
    Shape("tool_node", tool_node, runs(("agent", "agent#2", "shorten"), *_QUESTIONS)),
    Shape("create_agent", agent, runs(("model", "model#2"), *_QUESTIONS)),
    Shape("tool_loop", tool_loop, runs(("agent", "agent#2", "check"), *_QUESTIONS)),
)
