"""explain of graphs: templates, edges, what was saved and why not, in all three forms."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from grape_lc import ScriptedEngine, attach, explain_graph
from grape_lc.adapters.explain import explain_flow, handler_of
from grape_lc.adapters.explain_edges import why_of
from grape_lc.adapters.explain_text import WIDTH
from grape_lc.adapters.explained import EdgeReport, GraphExplanation
from grape_lc.adapters.langchain import ChatGrape
from grape_lc.adapters.savings import MOST_RUNS, PROGRAM, CallSaving, RunSavings
from grape_lc.config import graphs_dir
from grape_lc.errors import EngineDiedError
from grape_lc.flow import InputVar, IntermediateVar, NewestVar, OutputVar, TaskFlow


def chain_flow(last: str, *, limit: int | None = None, opaque: str = "") -> TaskFlow:
    """plan -> draft -> final; ``last`` is the prompt of final."""
    flow = TaskFlow(name="chain")
    flow.add_variable(InputVar("topic"))
    if opaque:
        flow.add_variable(InputVar("o", opaque=True, description=opaque))
    flow.add_variable(IntermediateVar("p"))
    flow.add_variable(IntermediateVar("d"))
    flow.add_variable(OutputVar("f"))
    flow.add_task([("user", "Plan {topic}")], "p", name="plan", max_tokens=limit)
    flow.add_task([("user", "Draft by {p}")], "d", name="draft", max_tokens=limit)
    flow.add_task([("user", last)], "f", name="final")
    return flow


def run_of(
    *calls: tuple[str, int, int, int], outcome: str = "adopted", at: float = 1
) -> RunSavings:
    """calls: task, tokens of the prompt, of the answer, and prefilled ahead."""
    return RunSavings(
        at=at,
        calls=[
            CallSaving(task, prompt, answer, ahead, ahead, outcome, PROGRAM)
            for task, prompt, answer, ahead in calls
        ],
    )


def edge(found: GraphExplanation, upstream: str, downstream: str) -> EdgeReport:
    [one] = [e for e in found.edges if (e.upstream, e.downstream) == (upstream, downstream)]
    return one


def words(text: str) -> str:
    return " ".join(text.split())


# -- edges ------------------------------------------------------------------------------------


def test_an_edge_says_what_is_expected_before_anything_ran() -> None:
    found = explain_flow("g", chain_flow("Head. {p} mid {d} end", limit=50), count_tokens=len)
    draft = edge(found, "draft", "final")
    plan = edge(found, "plan", "final")
    assert (plan.known.tokens, plan.answer_ahead, plan.answer_tokens, plan.basis) == (
        len("Head. "),
        True,
        50,
        "limit",
    )
    # Text between two answers is prefilled while the second is written, text behind it is not.
    assert (draft.known.tokens, draft.answer_ahead) == (len(" mid "), True)
    assert (plan.saved, plan.prompt_tokens) == (None, None)
    assert "no run was seen yet" in str(found)


def test_an_answer_is_measured_once_it_was_seen() -> None:
    runs = [run_of(("plan", 5, 20, 0)), run_of(("plan", 5, 30, 0), at=2)]
    found = explain_flow("g", chain_flow("{p}{d}", limit=50), runs=runs)
    one = edge(found, "plan", "draft")
    assert (one.answer_tokens, one.basis) == (25, "measured")
    assert "the answer, 25 on average" in str(found)


def test_what_one_edge_saved_is_all_that_was_prefilled_ahead() -> None:
    runs = [
        run_of(("plan", 5, 20, 0), ("draft", 30, 9, 20)),
        run_of(("plan", 5, 20, 0), ("draft", 34, 9, 30), at=2),
    ]
    found = explain_flow("g", chain_flow("{p}{d}"), runs=runs)
    one = edge(found, "plan", "draft")
    assert (one.saved, one.prompt_tokens, one.why) == (25, 32, ())
    assert "25 (78%) of 32" in str(found)
    assert [(run.prompt_tokens, run.ahead_tokens) for run in found.runs] == [(35, 20), (39, 30)]


def test_what_several_edges_saved_is_dealt_out_in_the_order_of_the_prompt() -> None:
    flow = chain_flow("abcd{p}ef{d}gh")
    runs = [run_of(("plan", 5, 20, 0), ("draft", 30, 10, 25), ("final", 40, 7, 33))]
    found = explain_flow("g", flow, runs=runs, count_tokens=len)
    # abcd and the plan: 4 + 20; ef and 7 of the draft's 10: the rest.
    assert edge(found, "plan", "final").saved == 24
    assert edge(found, "draft", "final").saved == 9
    assert "dealt out in the prompt's order" in words(str(found))


@settings(deadline=None)
@given(
    st.permutations(["{topic}", "{p}", "{d}", "text", "{o}", "{p|strip}"]),
    st.integers(0, 6),
    st.lists(st.tuples(*[st.integers(0, 500)] * 3), min_size=1, max_size=3),
)
def test_no_token_that_was_prefilled_counts_twice(
    parts: list[str], cut: int, numbers: list[tuple[int, int, int]]
) -> None:
    # Both answers are read, whatever is cut off.
    flow = chain_flow(" ".join(parts[cut:]) + " {p} {d}{o}", opaque="runs differ")
    runs = [
        run_of(("plan", 5, plan, 0), ("draft", 9, draft, 0), ("final", ahead + 3, 1, ahead))
        for plan, draft, ahead in numbers
    ]
    found = explain_flow("g", flow, runs=runs)
    into = [e for e in found.edges if e.downstream == "final"]
    assert [e.upstream for e in into] == list(flow.upstream("final"))
    saved = [e.saved for e in into if e.saved is not None]
    mean = sum(ahead for *_, ahead in numbers) / len(numbers)
    assert all(share >= 0 for share in saved)
    assert sum(saved) <= mean + 1e-6
    Page(found.to_html())
    assert max(map(len, str(found).splitlines())) <= WIDTH


def branches_flow() -> TaskFlow:
    """``end`` reads the answer of ``long`` or of ``short``."""
    flow = TaskFlow(name="branches")
    flow.add_variable(InputVar("town"))
    for name in ("l", "s"):
        flow.add_variable(IntermediateVar(name))
    flow.add_variable(NewestVar("text", of=("l", "s")))
    flow.add_variable(OutputVar("e"))
    flow.add_task("Long on {town}", "l", name="long", max_tokens=50)
    flow.add_task("Short on {town}", "s", name="short", max_tokens=50)
    flow.add_task("About {town}: {text} end", "e", name="end")
    return flow


def test_what_was_saved_is_the_branch_s_that_was_taken() -> None:
    runs = [run_of(("long", 9, 20, 0), ("end", 40, 5, 30))]
    found = explain_flow("g", branches_flow(), runs=runs, count_tokens=len)
    long, short = edge(found, "long", "end"), edge(found, "short", "end")
    assert (long.saved, long.why) == (30, ())
    assert short.saved == 0
    assert short.why == (
        "1 call: it had not answered before in that run, or another answer was newer",
    )
    # Either may be read, so of both the same is expected.
    assert long.known == short.known
    assert long.answer_ahead
    assert short.answer_ahead


def test_of_several_answers_that_were_given_the_last_one_saved() -> None:
    runs = [
        run_of(("short", 9, 4, 0), ("long", 9, 20, 0), ("end", 40, 5, 30)),
        run_of(("long", 9, 20, 0), ("short", 9, 4, 0), ("end", 24, 5, 10), at=2),
    ]
    found = explain_flow("g", branches_flow(), runs=runs, count_tokens=len)
    assert edge(found, "long", "end").saved == 30 / 2
    assert edge(found, "short", "end").saved == 10 / 2


def test_an_upstream_that_did_not_run_saved_nothing() -> None:
    runs = [run_of(("draft", 9, 10, 0), ("final", 40, 1, 30))]
    found = explain_flow("g", chain_flow("abcd{p}ef{d}gh"), runs=runs, count_tokens=len)
    assert edge(found, "plan", "final").saved == 0
    assert edge(found, "draft", "final").saved == 30


def test_an_edge_saved_no_more_than_is_its_own() -> None:
    # Text behind the last answer went in ahead, too; it is not the edge's.
    runs = [run_of(("plan", 5, 20, 0), ("draft", 28, 10, 28))]
    flow = TaskFlow(name="two")
    flow.add_variable(IntermediateVar("p"))
    flow.add_variable(OutputVar("d"))
    flow.add_task("Plan", "p", name="plan")
    flow.add_task("ab{p}cdefgh", "d", name="draft")
    assert edge(explain_flow("g", flow, runs=runs, count_tokens=len), "plan", "draft").saved == 22


def test_an_input_without_a_size_takes_no_more_than_the_run_left_it() -> None:
    # Behind {o} nothing is prepared: of 400 tokens 33 went in, 4 + 9 are known of them.
    flow = chain_flow("abcd{topic}{p}{o}{d}", opaque="runs differ")
    runs = [run_of(("plan", 5, 9, 0), ("draft", 9, 50, 0), ("final", 400, 1, 33))]
    found = explain_flow("g", flow, runs=runs, count_tokens=len)
    assert edge(found, "plan", "final").saved == 33
    assert edge(found, "draft", "final").saved == 0
    assert "of unknown size: {topic}" in words(str(found))
    sized = explain_flow("g", flow, inputs={"topic": "x"}, runs=runs, count_tokens=len)
    assert "of unknown size" not in words(str(sized))


def test_an_answer_behind_a_later_one_says_why_it_waits() -> None:
    found = explain_flow("g", chain_flow("{d}{p}"))
    one = edge(found, "plan", "final")
    assert not one.answer_ahead
    assert one.why == ("{p} stands behind the answer of 'draft', which is complete later",)
    assert any(advice.kind == "order" and advice.what == "{p}" for advice in found.advice)


def test_an_older_answer_that_goes_in_while_another_is_written_is_expected() -> None:
    flow = TaskFlow(name="four")
    for name in "abcd":
        flow.add_variable(IntermediateVar(name) if name != "d" else OutputVar(name))
    flow.add_task("one", "a", max_tokens=7)
    flow.add_task("of {a}", "b")
    flow.add_task("of {b}", "c")
    flow.add_task("{b} {a} {c}", "d")
    one = edge(explain_flow("g", flow), "a", "d")
    assert (one.answer_ahead, one.answer_tokens, one.basis) == (True, 7, "limit")
    assert one.why == ("{a} stands behind the answer of 'b', which is complete later",)


def test_a_field_of_an_answer_has_no_size_but_text_behind_it_goes_in() -> None:
    flow = chain_flow("{p|json:a} then {d}", limit=50)
    runs = [run_of(("plan", 5, 20, 0), ("draft", 9, 10, 0), ("final", 30, 1, 25))]
    found = explain_flow("g", flow, runs=runs, count_tokens=len)
    plan, draft = edge(found, "plan", "final"), edge(found, "draft", "final")
    assert (plan.known.tokens, plan.known.unsized) == (len(" then "), ())
    assert (plan.answer_ahead, plan.answer_tokens, plan.basis) == (True, None, "part")
    assert "6 known, a part of the answer" in str(found)
    # The field is what the text and the draft leave of the prompt: 30 - 6 - 10.
    assert (plan.saved, draft.saved) == (14 + 6, 5)


def test_an_answer_behind_an_opaque_value_is_not_prepared() -> None:
    found = explain_flow("g", chain_flow("{o}{p}{d}", opaque="runs differ"))
    for upstream in ("plan", "draft"):
        one = edge(found, upstream, "final")
        assert (one.answer_ahead, one.known.tokens) == (False, 0)
        assert one.why == ("it stands behind {o}, which is not prepared: runs differ",)
    assert "not prepared" in str(found)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        ("truncated", "differs from the template under way"),
        ("mismatch", "near its beginning"),
        ("cold", "nothing was computed yet"),
        ("unknown", "released or had expired"),
        ("none", "no prompt was open"),
        ("refused:prompt logprobs", "the engine refused it: prompt logprobs"),
        ("something new", "something new"),
    ],
)
def test_why_not_is_said_of_every_outcome(outcome: str, said: str) -> None:
    runs = [run_of(("plan", 5, 20, 0), ("draft", 30, 9, 0), outcome=outcome)]
    found = explain_flow("g", chain_flow("{p}{d}"), runs=runs)
    [why] = edge(found, "plan", "draft").why
    assert why.startswith("1 call: ")
    assert said in why
    assert said in words(str(found))
    assert why_of("adopted") is None


def test_only_the_first_call_is_sent_before_anything_could_be_prepared() -> None:
    flow = TaskFlow(name="two")
    flow.add_variable(InputVar("o", opaque=True, description="runs differ"))
    for name in ("a", "b"):
        flow.add_variable(OutputVar(name))
    flow.add_task("First", "a")
    flow.add_task("The head of the second {o}", "b")
    ahead = [run_of(("a", 5, 20, 0), ("b", 30, 9, 20))]
    ahead[0].calls[0] = ahead[0].calls[0]._replace(outcome="none")
    text = words(str(explain_flow("g", flow, runs=ahead)))
    assert "a last runs 1 call in 1 run; it reads no answer, so it is sent before" in text
    assert "b not prepared {o}: runs differ last runs 1 call in 1 run, 1 found it prepared" in text
    cold = [run_of(("a", 5, 20, 0), ("b", 30, 9, 0), outcome="cold")]
    text = words(str(explain_flow("g", flow, runs=cold)))
    assert text.count("before anything could be prepared") == 1
    assert "1 call in 1 run, 0 found it prepared; 1 call: nothing was computed yet" in text


def test_calls_stand_in_the_order_in_which_they_are_made() -> None:
    flow = TaskFlow(name="sections")
    names = [f"section[{number}]" for number in (0, 10, 9)]
    for n, name in enumerate(("last", *names)):
        flow.add_variable(OutputVar(f"v{n}"))
        flow.add_task("text", f"v{n}", name=name)
    assert [call.task for call in explain_flow("g", flow).calls] == [
        "last",
        "section[0]",
        "section[9]",
        "section[10]",
    ]
    runs = [run_of(("other", 1, 1, 0), ("section[9]", 1, 1, 0), ("last", 1, 1, 0))]
    found = explain_flow("g", flow, runs=runs)
    assert [call.task for call in found.calls] == [
        "other",
        "section[0]",
        "section[9]",
        "section[10]",
        "last",
    ]


def test_an_input_behind_an_answer_is_told_of_however_little_stands_there() -> None:
    flow = chain_flow("{d}{topic}{p}")
    told = {(advice.what, advice.kind) for advice in explain_flow("g", flow).advice}
    assert ("{topic}", "order") in told
    sized = explain_flow("g", flow, inputs={"topic": "x"})
    assert "{topic}" not in {advice.what for advice in sized.advice}


def test_an_upstream_stands_before_its_downstream_whatever_ended_first() -> None:
    runs = [run_of(("final", 1, 1, 0), ("plan", 1, 1, 0), ("draft", 1, 1, 0))]
    found = explain_flow("g", chain_flow("{p}{d}"), runs=runs)
    assert [call.task for call in found.calls] == ["plan", "draft", "final"]
    assert [e.downstream for e in found.edges] == ["draft", "final", "final"]


def test_a_call_that_the_flow_does_not_have_is_listed() -> None:
    found = explain_flow("g", chain_flow("{p}{d}"), runs=[run_of(("other", 5, 20, 0))])
    [last] = [call for call in found.calls if call.task == "other"]
    assert (last.task, last.source, last.prompt) == ("other", "none", None)
    assert "no such task" in str(last.why)


def test_sources_are_told() -> None:
    found = explain_flow("g", chain_flow("{p}{d}"), sources={"plan": "learned", "draft": "traced"})
    assert [call.source for call in found.calls] == ["learned", "traced", "declared"]


# -- attached graphs --------------------------------------------------------------------------


def test_an_attached_graph_explains_itself_before_and_after_runs(
    team: Any, team_flow: TaskFlow
) -> None:
    attached: Any = attach(team, team_flow)
    before = attached.explain()
    assert [call.task for call in before.calls] == ["prd", "design", "risks", "code"]
    assert before.estimated
    assert {(e.upstream, e.downstream) for e in before.edges} == {
        ("prd", "design"),
        ("prd", "risks"),
        ("design", "code"),
        ("risks", "code"),
    }
    for word in ("a", "b"):
        attached.invoke({"problem": word})
    after = attached.explain()
    # The engine counts by now; every call was in a program.
    assert not after.estimated
    assert len(after.runs) == 2
    assert all(call.last is not None and call.last.calls == 2 for call in after.calls)
    assert [dict(call.last.outcomes) for call in after.calls if call.last] == [{"none": 2}] * 4


def test_a_graph_that_learns_says_how_far_it_is(make_team: Any, engine: ScriptedEngine) -> None:
    attached: Any = attach(make_team(ChatGrape(engine=engine)), learned="memory")
    assert attached.explain().calls == ()
    attached.invoke({"problem": "first problem"})
    once = attached.explain()
    assert {call.source for call in once.calls} == {"none"}
    assert "no template yet" in words(str(once))
    attached.invoke({"problem": "another one"})
    twice = attached.explain()
    assert {call.source for call in twice.calls} == {"learned"}
    assert len(twice.edges) == 4
    assert "there was no template yet" in words(str(twice))


async def test_an_event_loop_may_ask_too(team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(team, team_flow)
    await attached.ainvoke({"problem": "a"})
    async for _ in attached.astream({"problem": "b"}):
        pass
    assert len(attached.explain().runs) == 2


def test_calls_of_other_models_are_told(make_team: Any) -> None:
    model = GenericFakeChatModel(messages=iter(AIMessage("an answer") for _ in range(9)))
    attached: Any = attach(make_team(model))
    attached.invoke({"problem": "a"})
    text = words(str(attached.explain()))
    assert "4 calls of GenericFakeChatModel, which is not served by this package" in text
    assert "no run was seen yet" not in text
    assert "no call of a model of this package was seen yet" in text


class Refusing(ScriptedEngine):
    """An engine that prepares no prompts."""

    def info(self) -> dict[str, Any]:
        return {"early_refusal": "chunked prefill is off"}


def test_an_engine_that_prepares_nothing_says_why(make_team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(make_team(ChatGrape(engine=Refusing("ok"))), team_flow)
    attached.invoke({"problem": "a"})
    assert "the engine prepares no prompts: chunked prefill is off" in str(attached.explain())


def test_a_scripted_engine_says_that_it_prepares_nothing(team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(team, team_flow)
    attached.invoke({"problem": "a"})
    assert "the engine prepares no prompts: it is a script" in str(attached.explain())


def test_a_resumed_run_says_why_nothing_was_prepared() -> None:
    runs = [run_of(("plan", 5, 20, 0), ("draft", 30, 9, 0))]
    runs[0].calls[1] = runs[0].calls[1]._replace(program="resumed", outcome="none")
    found = explain_flow("g", chain_flow("{p}{d}"), runs=runs)
    [why] = edge(found, "plan", "draft").why
    assert why.startswith("1 call: the run was resumed")


def test_it_may_be_asked_while_runs_go_on(team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(team, team_flow)

    def run(number: int) -> None:
        attached.invoke({"problem": f"problem {number}"})
        found = attached.explain()
        assert len(found.to_html()) > 1000
        assert all(report.calls for report in found.runs)

    with ThreadPoolExecutor(4) as executor:
        list(executor.map(run, range(24)))
    found = attached.explain()
    assert len(found.runs) == MOST_RUNS
    assert {report.calls for report in found.runs} == {4}


def test_graphs_without_a_flow_say_so(team: Any) -> None:
    assert "not attached" in str(explain_graph(team))
    native: Any = attach(team, learn=False)
    assert "attached without a flow" in str(native.explain())


def test_a_closed_engine_is_not_asked(team: Any, team_flow: TaskFlow, engine: Any) -> None:
    attached: Any = attach(team, team_flow)
    attached.invoke({"problem": "a"})
    engine.close()
    assert attached.explain().estimated


class Gone(ScriptedEngine):
    """An engine that dies without a word."""

    gone = False

    def count_tokens(self, text: str) -> int:
        if self.gone:
            raise EngineDiedError("gone")
        return super().count_tokens(text)


def test_an_engine_that_ends_meanwhile_leaves_estimates(
    make_team: Any, team_flow: TaskFlow
) -> None:
    engine = Gone("ok")
    attached: Any = attach(make_team(ChatGrape(engine=engine)), team_flow)
    attached.invoke({"problem": "a"})
    assert not attached.explain().estimated
    engine.gone = True
    found = attached.explain()
    assert found.estimated
    assert len(found.edges) == 4


def test_inputs_give_sizes(team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(team, team_flow)
    [prd, *_] = attached.explain({"problem": "12345"}, len).calls
    assert prd.prompt.known_at_start.tokens == len("Requirements of 12345.")


def test_other_processes_see_the_numbers(team: Any, team_flow: TaskFlow) -> None:
    attached: Any = attach(team, team_flow)
    attached.invoke({"problem": "a secret text"})
    handler = handler_of(attached)
    assert handler is not None
    handler.savings.flush()
    [file] = graphs_dir().glob("*.savings.json")
    assert "a secret text" not in file.read_text()
    assert len(json.loads(file.read_text())["runs"]) == 1
    # As another process would.
    again: Any = attach(team, team_flow)
    assert len(again.explain().runs) == 1


# -- text -------------------------------------------------------------------------------------

RUNS = [
    run_of(("plan", 5, 20, 0), ("draft", 30, 9, 20), ("final", 44, 9, 30)),
    run_of(("plan", 5, 22, 0), ("draft", 32, 9, 2), outcome="truncated", at=2),
]


def test_the_text_fits_a_terminal() -> None:
    flow = chain_flow("Today is 2026-11-30. {o}" + "long text " * 60 + "{d}{p}", opaque="why " * 40)
    text = str(explain_flow("g", flow, runs=RUNS))
    assert max(map(len, text.splitlines())) <= WIDTH
    for part in ("plan -> draft", "why not more", "advice", "not prepared", "last 2 runs"):
        assert part in text


# -- plain data -------------------------------------------------------------------------------


def test_plain_data_keeps_its_form() -> None:
    data = explain_flow("g", chain_flow("{d}{p}", opaque=""), runs=RUNS).to_dict()
    assert json.loads(json.dumps(data)) == data
    assert data["version"] == 1
    assert shape(data) == {
        "version": "int",
        "graph": "str",
        "estimated": "bool",
        "calls": [
            {
                "task": "str",
                "source": "str",
                "prompt": {
                    "task": "str",
                    "known_at_start": "int",
                    "unsized_at_start": ["str"],
                    "streams_in": [],
                    "waits": [],
                    "never": "NoneType",
                },
                "last": {
                    "runs": "int",
                    "calls": "int",
                    "prompt_tokens": "float",
                    "completion_tokens": "float",
                    "cached_tokens": "float",
                    "ahead_tokens": "float",
                    "outcomes": {"adopted": "int", "truncated": "int"},
                },
                "why": "NoneType",
            }
        ],
        "edges": [
            {
                "upstream": "str",
                "downstream": "str",
                "expected": {
                    "known": "int",
                    "unsized": [],
                    "answer_ahead": "bool",
                    "answer_tokens": "float",
                    "basis": "str",
                },
                "saved": "float",
                "prompt_tokens": "float",
                "why": ["str"],
            }
        ],
        "advice": [{"task": "str", "kind": "str", "what": "str", "tokens": "int", "text": "str"}],
        "runs": [
            {
                "at": "int",
                "calls": "int",
                "prompt_tokens": "int",
                "cached_tokens": "int",
                "ahead_tokens": "int",
            }
        ],
        "notes": ["str"],
    }


def shape(value: Any) -> Any:
    """Keys and types; of a list those of its first entry."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


# -- HTML -------------------------------------------------------------------------------------


class Page(HTMLParser):
    """Checks that tags are closed in order; gathers tags, attributes and text."""

    VOID = frozenset({"meta", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_loads_nothing() -> None:
    found = explain_flow("g", chain_flow("{d}{p}"), runs=RUNS)
    page = Page(found.to_html())
    assert page.tags[:2] == ["html", "head"]
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert {name for name, _ in page.attributes} <= {"lang", "charset", "class", "style"}
    assert "url(" not in found.to_html()
    assert "@import" not in found.to_html()
    for text in ("plan -> draft", "why not more", "on average", "order"):
        assert text in page.text


def test_a_notebook_shows_a_part_of_the_page() -> None:
    found = explain_flow("g", chain_flow("{p}{d}"), runs=RUNS)
    part = found._repr_html_()
    assert Page(part).tags[0] == "div"
    assert part in found.to_html()


hostile = st.sampled_from(
    [
        "<script>alert(1)</script>",
        "</td></table>",
        "\"' onload=x",
        "&lt;b&gt;",
        "<!--",
        "]]>",
        "\u2028",
    ]
) | st.text(min_size=1, max_size=20).filter(str.strip)


@settings(deadline=None, max_examples=50)
@given(hostile, hostile, hostile)
def test_hostile_names_and_prompts_stay_text(name: str, task: str, prompt: str) -> None:
    flow = TaskFlow(name="x")
    flow.add_variable(IntermediateVar("a"))
    flow.add_variable(OutputVar("b"))
    flow.add_task("one", "a", name=f"{task}1")
    prompt = prompt.replace("{", "").replace("}", "") or "x"
    flow.add_task(f"{{a}}{prompt}", "b", name=f"{task}2")
    runs = [run_of((f"{task}1", 1, 1, 0), (f"{task}2", 9, 1, 0), outcome=prompt)]
    found = explain_flow(name, flow, runs=runs, notes=[prompt])
    page = Page(found.to_html())
    plain = Page(explain_flow("n", chain_flow("{p}{d}"), runs=runs).to_html())
    assert set(page.tags) <= set(plain.tags)
    assert {key for key, _ in page.attributes} <= {"lang", "charset", "class", "style"}
    assert {value for key, value in page.attributes if key == "class"} <= {
        "grape-explain",
        "number",
        "bar",
    }
    assert f"{task}1 -> {task}2" in page.text
