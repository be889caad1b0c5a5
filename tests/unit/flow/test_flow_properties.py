"""Properties of random flows, against slow and simple definitions of the same things."""

from __future__ import annotations

from itertools import pairwise, permutations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grape_lc.flow import (
    TRANSDUCERS,
    InputVar,
    IntermediateVar,
    OutputVar,
    PromptTemplate,
    Sampling,
    Slot,
    Task,
    TaskFlow,
    literal_to_template,
    lower,
)

# A busy machine may take its time.
steady = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

texts = st.sampled_from(["", "go", " ", "\n\n", "{", "{out0}", "}}", " end ", "größe\u2003"])
samplings = st.builds(
    Sampling,
    max_tokens=st.none() | st.integers(1, 500),
    temperature=st.none() | st.floats(0, 2),
    stop=st.lists(texts, max_size=2).map(tuple),
)


@st.composite
def prompts(draw, names):
    """A prompt that reads each of these variables at least once, in any order."""
    extra = st.lists(st.sampled_from(names), max_size=2) if names else st.just([])
    read = draw(st.permutations([*names, *draw(extra)]))
    parts = [literal_to_template(draw(texts))]
    for name in read:
        slot = Slot(name, draw(st.sampled_from(list(TRANSDUCERS.values()))))
        parts += [str(slot), literal_to_template(draw(texts))]
    contents = ["".join(parts[i : i + 2]) for i in range(0, len(parts), 2)]
    if not any(contents):
        contents = ["go"]
    if draw(st.booleans()):
        return PromptTemplate.of("".join(contents))
    roles = st.sampled_from(["system", "user", "assistant"])
    return PromptTemplate.of([(draw(roles), content) for content in contents])


@st.composite
def flows(draw, max_tasks=6):
    """A valid flow of tasks declared in any order."""
    count = draw(st.integers(1, max_tasks))
    inputs = [f"in{i}" for i in range(draw(st.integers(0, 2)))]
    outputs = [f"out{i}" for i in range(count)]
    tasks = []
    read: set[str] = set()
    for i in range(count):  # task i may read what was written before it
        choice = st.lists(st.sampled_from([*inputs, *outputs[:i], ""]), unique=True, max_size=4)
        names = [name for name in draw(choice) if name]
        read |= set(names)
        prompt = draw(prompts(names))
        name = f"task {i}"
        tasks.append(Task(name=name, prompt=prompt, output=outputs[i], sampling=draw(samplings)))
    variables: list[InputVar | IntermediateVar | OutputVar] = [
        InputVar(name) for name in inputs if name in read
    ]
    for name in outputs:
        inner = name in read and draw(st.booleans())
        variables.append(IntermediateVar(name) if inner else OutputVar(name))
    return TaskFlow(
        name=draw(texts),
        variables=tuple(draw(st.permutations(variables))),
        tasks=tuple(draw(st.permutations(tasks))),
    )


def readers(flow):
    """(upstream, downstream) for all pairs of tasks, straight from the definition."""
    return {
        (up.name, down.name)
        for up in flow.tasks
        for down in flow.tasks
        if up.output in down.prompt.variables
    }


def is_topological(order, edges):
    return all(order.index(up) < order.index(down) for up, down in edges)


@steady
@given(flows())
def test_random_flows_are_valid_whichever_way_they_are_built(flow):
    flow.validate_flow()
    built = TaskFlow(name=flow.name)
    for var in flow.variables:
        built.add_variable(var)
    for task in flow.tasks:
        built.add_task(task.prompt, task.output, name=task.name, sampling=task.sampling)
    assert built == flow


@steady
@given(flows(max_tasks=5))
def test_the_order_is_the_first_topological_one_by_declaration(flow):
    edges = readers(flow)
    names = [task.name for task in flow.tasks]
    # permutations() yields them sorted by the declaration order of `names`
    first = next(list(p) for p in permutations(names) if is_topological(p, edges))
    assert [task.name for task in flow.order()] == first


@steady
@given(flows())
def test_neighbours_are_those_that_share_a_variable(flow):
    edges = readers(flow)
    for task in flow.tasks:
        assert {(up, task.name) for up in flow.upstream(task)} == {
            edge for edge in edges if edge[1] == task.name
        }
        assert {(task.name, down) for down in flow.downstream(task)} == {
            edge for edge in edges if edge[0] == task.name
        }
        assert len(set(flow.upstream(task))) == len(flow.upstream(task))
        depths = [flow.depth(up) for up in flow.upstream(task)]
        assert flow.depth(task) == (1 + max(depths) if depths else 0)
        assert flow.ancestors(task) == set(flow.upstream(task)).union(
            *(flow.ancestors(up) for up in flow.upstream(task))
        )


@steady
@given(flows())
def test_json_round_trip(flow):
    text = flow.to_json()
    again = TaskFlow.from_json(text)
    assert again == flow
    assert again.to_json() == text
    assert again.order() == flow.order()
    assert lower(again) == lower(flow)
    assert str(again.explain()) == str(flow.explain())


@steady
@given(flows(), st.integers(1, 64))
def test_lowering_is_valid_and_covers_every_prompt(flow, chunk):
    graph = lower(flow, chunk=chunk)
    graph.validate()
    order = [task.name for task in flow.order()]
    assert list(dict.fromkeys(node.task for node in graph.nodes)) == order
    fed = {task.output: task.name for task in flow.tasks}
    expected = []
    for task in flow.tasks:
        own = [node for node in graph.nodes if node.task == task.name]
        segments = tuple(s for _, segments in task.prompt.sections for s in segments)
        assert tuple(s for node in own for s in node.segment) == segments
        for node in own[:-1]:
            if node.nature == "dynamic":
                [slot] = node.segment
                assert isinstance(slot, Slot)
                assert slot.variable in fed
                expected.append((f"{fed[slot.variable]}/decode", node.id, chunk))
            else:
                assert not any(isinstance(s, Slot) and s.variable in fed for s in node.segment)
        natures = [node.nature for node in own[:-1]]
        assert ("static", "static") not in pairwise(natures)
    partial = [(e.src, e.dst, e.weight) for e in graph.edges if e.kind == "partial"]
    assert sorted(partial) == sorted(expected)


@steady
@given(flows())
def test_hops_are_shortest_distances(flow):
    graph = lower(flow)
    decodes = {node.id for node in graph.nodes if node.kind == "decode"}
    hops = graph.hops()
    assert set(hops) == {node.id for node in graph.nodes}
    for node in graph.nodes:
        if node.id in decodes:
            assert hops[node.id] == 0
        else:
            assert hops[node.id] == 1 + min(hops[e.dst] for e in graph.edges if e.src == node.id)


@steady
@given(flows(), st.data())
def test_explain_accounts_for_every_character_of_every_prompt(flow, data):
    values = {var.name: data.draw(texts, label=var.name) for var in flow.variables}
    inputs = {var.name: values[var.name] for var in flow.variables if var.kind == "input"}
    fed = {task.output for task in flow.tasks}
    explanation = flow.explain(inputs, len)
    assert [row.task for row in explanation.tasks] == [task.name for task in flow.order()]
    for row in explanation.tasks:
        prompt = flow.task(row.task).prompt
        rendered = prompt.render_partial(lambda s: s.transducer.apply(values[s.variable]))
        whole = [rendered] if isinstance(rendered, str) else [m["content"] for m in rendered]
        known = row.known_at_start.tokens + sum(w.amount.tokens for w in row.waits if w.amount)
        answers = [s for s in prompt.slots if s.variable in fed]
        filled = sum(len(s.transducer.apply(values[s.variable])) for s in answers)
        assert known + filled == sum(map(len, whole))
        whole_answers = [w for w in row.waits if w.amount is None]
        assert len(row.streams_in) + len(whole_answers) == len(answers)


@settings(steady, max_examples=200)
@given(flows(max_tasks=5))
def test_explain_is_right_about_every_possible_schedule(flow):
    """Tasks may end in any topological order. What must hold in each, and what in none?"""
    edges = readers(flow)
    names = [task.name for task in flow.tasks]
    schedules = [p for p in permutations(names) if is_topological(p, edges)]
    writer = {task.output: task.name for task in flow.tasks}
    for row in flow.explain().tasks:
        prompt = flow.task(row.task).prompt
        streams = list(row.streams_in)
        waits = list(row.waits)
        front: list[str] = []
        for piece in prompt.cut_at(writer):
            ends = [max((s.index(name) for name in front), default=-1) for s in schedules]
            streaming = False
            if isinstance(piece, Slot):
                source = writer[piece.variable]
                at = [s.index(source) for s in schedules]
                streaming = any(a > end for a, end in zip(at, ends, strict=True))
                if streaming:
                    part = streams.pop(0)
                    assert (part.source, part.slot) == (source, str(piece))
                    freely = all(a > end for a, end in zip(at, ends, strict=True))
                    assert freely == (not part.after)
                    for name in part.after:
                        assert any(s.index(name) > s.index(source) for s in schedules)
            if front and not streaming:
                wait = waits.pop(0)
                last = [max(s.index(name) for name in wait.until) for s in schedules]
                assert last == ends, "`until` ends exactly when all in front has"
                later = {
                    up
                    for up in flow.upstream(row.task)
                    if all(s.index(up) > end for s, end in zip(schedules, ends, strict=True))
                    and all((name, up) in closure(edges) for name in front)
                }
                assert (wait.meanwhile in later) if later else (wait.meanwhile is None)
            if isinstance(piece, Slot):
                front.append(writer[piece.variable])
        assert not streams
        assert not waits


def closure(edges):
    """All pairs joined by a path."""
    pairs = set(edges)
    while more := {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs:
        pairs |= more
    return pairs
