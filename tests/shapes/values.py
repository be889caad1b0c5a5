"""Answers that change on their way into the next prompt, and states of other kinds."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, TypedDict

from langgraph.graph import START, StateGraph
from pydantic import BaseModel, Field

from grape_lc import ChatGrape
from tests.shapes.answers import thinking
from tests.shapes.shape import Shape, runs


class Recipe(BaseModel):
    name: str = Field(description="Of the dish.")
    steps: str = Field(description="How to cook it.")
    minutes: int


class Dinner(TypedDict, total=False):
    guests: str
    recipe: Recipe
    shopping: str
    invitation: str


def json_field(llm: ChatGrape) -> Any:
    """Fields of an object that the model wrote stand in later prompts."""
    cook = llm.with_structured_output(Recipe)

    def plan(state: Dinner) -> Dinner:
        recipe = cook.invoke(f"Choose a dish for these guests: {state['guests']}")
        assert isinstance(recipe, Recipe)
        return {"recipe": recipe}

    def shopping(state: Dinner) -> Dinner:
        prompt = (
            "Write a shopping list, sorted by shop, without anything that every kitchen has.\n"
            f"Steps:\n{state['recipe'].steps}\nGuests: {state['guests']}"
        )
        return {"shopping": str(llm.invoke(prompt).content)}

    def invite(state: Dinner) -> Dinner:
        prompt = f"Invite {state['guests']} to eat {state['recipe'].name}. Two sentences."
        return {"invitation": str(llm.invoke(prompt).content)}

    builder = StateGraph(Dinner)
    builder.add_node("plan", plan).add_node("shopping", shopping).add_node("invite", invite)
    builder.add_edge(START, "plan").add_edge("plan", "shopping").add_edge("shopping", "invite")
    return builder.compile()


class Panel(TypedDict, total=False):
    question: str
    first: str
    second: str
    chosen: str
    log: str
    report: str


def joins(llm: ChatGrape) -> Any:
    """Answers in ``repr``, ``str`` of a list and ``json.dumps``."""

    def first(state: Panel) -> Panel:
        return {"first": str(llm.invoke(f"You are a lawyer. {state['question']}").content)}

    def second(state: Panel) -> Panel:
        prompt = f"You are a doctor. {state['question']}\nThe lawyer said: {state['first']!r}"
        return {"second": str(llm.invoke(prompt).content)}

    def choose(state: Panel) -> Panel:
        answers = [state["first"], state["second"]]
        return {"chosen": str(llm.invoke(f"Which is the best answer? {answers}").content)}

    def report(state: Panel) -> Panel:
        record = json.dumps({"question": state["question"], "chosen": state["chosen"]}, indent=2)
        return {"report": str(llm.invoke(f"Write a report on this record:\n{record}").content)}

    builder = StateGraph(Panel)
    for node in (first, second, choose, report):
        builder.add_node(node)
    builder.add_edge(START, "first").add_edge("first", "second").add_edge("second", "choose")
    return builder.add_edge("choose", "report").compile()


class Puzzle(TypedDict, total=False):
    puzzle: str
    solution: str
    check: str


def think(llm: ChatGrape) -> Any:
    """A reasoning model, whose thoughts are cut off before the answer goes on."""

    def solve(state: Puzzle) -> Puzzle:
        return {"solution": str(llm.invoke(f"Solve this puzzle: {state['puzzle']}").content)}

    def check(state: Puzzle) -> Puzzle:
        solution = state["solution"].split("</think>")[-1].strip()
        prompt = f"Puzzle: {state['puzzle']}\nSolution: {solution}\nIs it right?"
        return {"check": str(llm.invoke(prompt).content)}

    builder = StateGraph(Puzzle).add_node("solve", solve).add_node("check", check)
    return builder.add_edge(START, "solve").add_edge("solve", "check").compile()


@dataclass
class Trip:
    place: str
    days: int = 3
    plan: str = ""
    packing: str = ""


def dataclass_state(llm: ChatGrape) -> Any:
    """A state that is a dataclass, with a number in it."""

    def plan(state: Trip) -> dict[str, str]:
        prompt = f"Plan {state.days} days in {state.place}, one line a day."
        return {"plan": str(llm.invoke(prompt).content)}

    def pack(state: Trip) -> dict[str, str]:
        prompt = f"Plan:\n{state.plan}\nWhat to pack for {state.place}?"
        return {"packing": str(llm.invoke(prompt).content)}

    builder = StateGraph(Trip).add_node("plan", plan).add_node("pack", pack)
    return builder.add_edge(START, "plan").add_edge("plan", "pack").compile()


class Offer(BaseModel):
    customer: str
    need: str
    offer: str = ""
    letter: str = ""


def pydantic_state(llm: ChatGrape) -> Any:
    """A state that is a pydantic model."""

    def offer(state: Offer) -> dict[str, str]:
        messages = [("system", "You sell tools."), ("user", f"What fits this need? {state.need}")]
        return {"offer": str(llm.invoke(messages).content).strip()}

    def letter(state: Offer) -> dict[str, str]:
        prompt = f"Dear {state.customer},\n\n{state.offer}\n\nFinish this letter."
        return {"letter": str(llm.invoke(prompt).content)}

    builder = StateGraph(Offer).add_node("offer", offer).add_node("letter", letter)
    return builder.add_edge(START, "offer").add_edge("offer", "letter").compile()


SHAPES = (
    Shape(
        "json_field",
        json_field,
        runs(
            ("plan", "shopping", "invite"),
            {"guests": "six friends, one of them eats no meat"},
            {"guests": "my parents and the neighbours"},
            {"guests": 'a {football} team after the "final"'},
            {"guests": "zwölf hungrige Kinder"},
        ),
    ),
    Shape(
        "joins",
        joins,
        runs(
            ("first", "second", "choose", "report"),
            {"question": "Who pays when a guest falls down the stairs?"},
            {"question": "How long may a shift last?"},
            {"question": 'Is it "safe" to keep {bees}, and isn\'t it loud?'},
            {"question": "Darf man nachts\nlaut üben?"},
        ),
    ),
    Shape(
        "think",
        think,
        runs(
            ("solve", "check"),
            {"puzzle": "Three boxes, one prize, two liars."},
            {"puzzle": "A river, a wolf, a goat and a cabbage."},
            {"puzzle": "Which {number} comes after 1, 1, 2, 3, 5?"},
            {"puzzle": 'Zwei Türen, "ein" Wächter.'},
        ),
        answer=thinking,
    ),
    Shape(
        "dataclass_state",
        dataclass_state,
        runs(
            ("plan", "pack"),
            Trip("the old town of Porto"),
            Trip("a cabin by a lake"),
            Trip("Kraków & {surroundings}"),
            Trip('"the end" of the line'),
        ),
        example=Trip("somewhere"),
    ),
    Shape(
        "pydantic_state",
        pydantic_state,
        runs(
            ("offer", "letter"),
            Offer(customer="Mrs. Hill", need="a saw for wet wood"),
            Offer(customer="Dr. Öztürk", need="screws that don't rust"),
            Offer(customer="the {club}", need='lamps for "reading" at night'),
            Offer(customer="Señor Ruiz", need="a ladder\nof eight steps"),
        ),
        example=Offer(customer="somebody", need="something"),
    ),
)
