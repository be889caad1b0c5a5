"""Records of steps: what was seen and planned, written, read and planned anew."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grape_lc.scheduler.cost import LinearCost, StepLoad
from grape_lc.scheduler.policy import plan
from grape_lc.scheduler.record import (
    VERSION,
    Difference,
    StepRecord,
    decode_plan,
    decode_snapshot,
    differences,
    encode_plan,
    encode_snapshot,
    header,
    read,
    replan,
)
from grape_lc.scheduler.settings import Constraint, PolicyConfig
from grape_lc.scheduler.types import Stage
from tests.unit.scheduler.factories import (
    CPU,
    configs,
    make_decodes,
    make_open,
    make_prefill,
    make_snapshot,
    make_view,
    snapshots,
    steady,
)

CONFIG = PolicyConfig(constraint=Constraint.CAP, prefill_cap=64)


def busy(**fields):
    return make_snapshot(
        step=7,
        decodes=make_decodes(2),
        prefills=[make_prefill("p1", tokens=140)],
        waiting=[make_view("c2", tokens=10, rank=(1.0, 2), after=("write", "check"), task="plan")],
        opens=[make_open("o3", tokens=160)],
        cost=CPU,
        **fields,
    )


def recorded(snapshot, config=CONFIG):
    planned = plan(snapshot, config)
    record = StepRecord.of(snapshot, planned)
    return record, planned


def lines_of(*records, config=CONFIG):
    return [header(config), *(record.to_json() for record in records)]


# ------------------------------------------------------------------ there and back


def test_a_step_is_written_and_read():
    record, planned = recorded(busy())
    record.finish(planned, {"d9": 1, "p1": 40, "c2": 10})
    record.load, record.seconds = StepLoad(4, 52, 600, 10.5), 0.061
    config, records = read(lines_of(record))
    (again,) = records
    assert config == CONFIG
    assert again == record
    assert again.ran == {"d9": 1, "p1": 40, "c2": 10}
    assert again.load == StepLoad(4, 52, 600, 10.5)
    assert decode_plan(again.plan) == planned
    assert differences(again, config) == []


def test_what_equals_its_default_is_left_out():
    snapshot = make_snapshot(opens=[make_open("o1", tokens=8, computed=0, max_output=1)])
    (view,) = encode_snapshot(snapshot)["views"]
    assert view == {
        "id": "o1",
        "seq": 1,
        "arrived": 0.1,
        "stage": "open",
        "tokens": 8,
        "hint": {"hops": 1},
        "hold_back": 1,
    }
    record, _ = recorded(snapshot)
    document = json.loads(record.to_json())
    assert document.keys() == {"step", "snapshot", "plan", "ran"}


def test_a_request_that_is_seen_twice_is_written_once():
    prefill = make_prefill()
    snapshot = make_snapshot(prefills=[prefill], running=[prefill], decodes=make_decodes(0))
    document = encode_snapshot(snapshot)
    assert len(document["views"]) == 1
    again = decode_snapshot(document)
    assert again.prefills[0] is again.running[0]


def test_a_record_is_a_copy():
    snapshot = busy()
    record, planned = recorded(snapshot)
    ran = {"p1": 40}
    record.finish(planned, ran)
    before = record.to_json()
    ran["c2"] = 10
    snapshot.prefills[0].computed += 40
    snapshot.waiting[0].stage = Stage.PREFILL
    assert record.to_json() == before


def test_hints_survive():
    view = decode_snapshot(encode_snapshot(busy())).waiting[0]
    assert view.hint.after == ("write", "check")
    assert view.hint.task == "plan"
    assert view.rank == (1.0, 2)


# ------------------------------------------------------------------ what the engine did not run


def test_what_was_planned_and_did_not_run_is_noted():
    record, planned = recorded(busy())
    assert {item.id for item in (*planned.prefills, *(planned.starts or ()), *planned.opens)} == {
        "p1",
        "c2",
        "o3",
    }
    record.finish(planned, {"p1": 40})
    assert record.refused == {
        "c2": "the engine did not run it",
        "o3": "the engine did not run it",
    }
    assert json.loads(record.to_json())["refused"] == record.refused


def test_who_was_given_nothing_was_not_refused_by_the_engine():
    snapshot = make_snapshot(
        decodes=make_decodes(1),
        prefills=[make_prefill("p1", tokens=600)],
        waiting=[make_view("c2", adopted=True, computed=190, rank=(1.0,))],
    )
    record, planned = recorded(snapshot)
    assert [(item.id, item.tokens) for item in planned.prefills] == [("p1", 0)]
    record.finish(planned, {"c2": 10})
    assert record.refused == {}


# ------------------------------------------------------------------ planned anew


def test_another_setting_makes_another_plan():
    record, planned = recorded(busy())
    found = differences(record, CONFIG.but(prefill_cap=32))
    assert {difference.part for difference in found} == {
        "budget",
        "opens",
        "predicted_s",
        "prefills",
        "refused",
        "starts",
    }
    assert Difference(7, "budget", planned.budget, planned.budget - 32) in found


def test_a_part_that_one_of_them_lacks_differs():
    record, _ = recorded(busy())
    del record.plan["reserve"]
    record.plan["mood"] = "good"
    parts = {(found.part, found.recorded is None) for found in differences(record, CONFIG)}
    assert parts == {("reserve", True), ("mood", False)}


def test_an_altered_snapshot_makes_another_plan():
    record, _ = recorded(busy())
    record.snapshot["pool"]["free"] = 0
    assert differences(record, CONFIG)


@steady
@given(st.lists(snapshots(), max_size=3), configs())
def test_any_file_of_records_plans_the_same(seen, config):
    records = [recorded(snapshot, config)[0] for snapshot in seen]
    again, read_records = read(line + "\n" for line in lines_of(*records, config=config))
    assert again == config
    for record, read_record in zip(records, read_records, strict=True):
        assert read_record == record
        assert replan(read_record, again) == record.plan
        assert differences(read_record, again) == []


# ------------------------------------------------------------------ what is no record


def test_only_a_fitted_cost_can_be_recorded():
    class Dearer(LinearCost):
        """Still one."""

    class Other:
        def seconds(self, load):
            return 1.0

    assert encode_snapshot(make_snapshot(cost=Dearer(1.0)))["cost"]["base"] == 1.0
    with pytest.raises(TypeError, match="only a LinearCost can be recorded, not a Other"):
        encode_snapshot(make_snapshot(cost=Other()))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("", "line 1: not JSON"),
        ("{", "line 1: not JSON"),
        ("[1]", "line 1: not an object but list"),
        ("{}", "line 1: records of version None, known is 1"),
        ('{"v": 2}', "line 1: records of version 2, known is 1"),
        ('{"v": 1, "config": {"chunk": 0}}', "line 1: .*chunk"),
        ('{"v": 1, "config": {"mood": 0}}', "line 1: unknown grape settings"),
        ('{"v": 1, "config": 3}', "line 1: "),
    ],
)
def test_a_bad_head(first, message):
    with pytest.raises((TypeError, ValueError), match=message):
        read([first])


def test_no_head_at_all():
    with pytest.raises(ValueError, match="line 1"):
        read([])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 3: .*not JSON"),
        ("3", "line 3: .*not an object but int"),
        ('{"step": 1, "plan": {}}', r"line 3: .*missing \['snapshot'\]"),
        ('{"step": 1, "plan": {}, "snapshot": {}, "x": 1}', r"line 3: .*unknown \['x'\]"),
        ('{"step": 1, "plan": {}, "snapshot": {}, "load": [1, 2, 3, 4, 5]}', "line 3: "),
    ],
)
def test_a_bad_line(line, message):
    record, _ = recorded(busy())
    _, records = read([header(CONFIG), record.to_json(), line])
    assert next(records).step == 7
    with pytest.raises(ValueError, match=message):
        next(records)


def test_empty_lines_say_nothing():
    record, _ = recorded(busy())
    _, records = read([header(CONFIG), "", record.to_json(), "\n"])
    assert len(list(records)) == 1


@pytest.mark.parametrize("part", ["views", "pool", "decodes", "signals", "cost", "waiting", "now"])
def test_a_snapshot_with_a_part_missing(part):
    document = encode_snapshot(busy())
    del document[part]
    with pytest.raises(ValueError, match=part):
        decode_snapshot(document)


@pytest.mark.parametrize("part", ["pool", "decodes", "signals"])
def test_a_part_that_holds_what_is_not_known(part):
    document = encode_snapshot(busy())
    with pytest.raises(TypeError, match="mood"):
        decode_snapshot({**document, part: {**document[part], "mood": "good"}})


def test_what_was_not_measured_at_the_time_has_its_default():
    snapshot = make_snapshot(queue=2.0)
    assert encode_snapshot(snapshot)["signals"] == {"queue": 2.0}
    assert decode_snapshot(encode_snapshot(snapshot)).signals == snapshot.signals


def test_a_snapshot_with_a_request_missing():
    document = encode_snapshot(busy())
    document["views"].pop()
    with pytest.raises(ValueError, match="o3"):
        decode_snapshot(document)


def test_a_plan_of_unknown_words():
    document = encode_plan(plan(busy(), CONFIG))
    with pytest.raises(ValueError, match="weather"):
        decode_plan({**document, "limit": "weather"})


def test_the_version_is_known():
    assert json.loads(header(CONFIG))["v"] == VERSION
