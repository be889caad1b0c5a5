from dataclasses import fields
from enum import StrEnum

import pytest

from grape_lc.bench.arms import Tuning, parse_arm, parse_arms, tuned_name, with_tuning
from grape_lc.bench.settings import DRAFT
from grape_lc.errors import ConfigError
from grape_lc.scheduler.settings import PLAIN, PolicyConfig


def test_the_three_kinds():
    stock, tuned, ours = parse_arms("vllm, vllm-opt,grape")
    assert [arm.name for arm in (stock, tuned, ours)] == ["vllm", "vllm-opt", "grape"]
    assert stock.engine_args() == {} == ours.engine_args()
    assert tuned.engine_args() == {"enable_prefix_caching": True, "scheduling_policy": "priority"}
    assert [arm.scheduler for arm in (stock, tuned, ours)] == ["stock", "stock", "grape"]
    assert [arm.attached for arm in (stock, tuned, ours)] == [False, False, True]
    assert [arm.ranked for arm in (stock, tuned, ours)] == [False, True, False]


def test_settings_are_read_as_what_they_are():
    text = "grape:incremental=false,prefill_cap=none,stretch=1.5,constraint=cap,chunk=16"
    arm = parse_arm(text)
    assert arm.name == text
    assert arm.engine_args() == {
        "grape": {
            "incremental": False,
            "prefill_cap": None,
            "stretch": 1.5,
            "constraint": "cap",
            "chunk": 16,
        }
    }
    assert PolicyConfig.from_mapping(arm.grape).prefill_cap is None
    assert parse_arm("grape:governor=no,static=yes").grape == {"governor": False, "static": True}


def test_settings_of_one_arm_may_hold_commas_between_arms():
    arms = parse_arms("grape:chunk=4,handover=false,vllm,vllm-opt:max_num_batched_tokens=64,grape")
    assert [arm.name for arm in arms] == [
        "grape:chunk=4,handover=false",
        "vllm",
        "vllm-opt:max_num_batched_tokens=64",
        "grape",
    ]
    assert arms[2].budget == 64


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("parrot", "no arm 'parrot'; there are: vllm, vllm-opt, grape, warm, layout"),
        ("vllm-opt+", "no arm 'vllm-opt+'"),
        ("grape+Draft", "no arm 'grape+Draft'"),
        ("grapevine", "no arm 'grapevine'"),
        ("grape+speed", "arm 'grape+speed' has no +speed; there are: +draft, +warm, +release"),
        ("grape-chunk", "arm 'grape-chunk' has no -chunk; there are: +draft, +warm, +release"),
        ("grape+pipe", "arm 'grape+pipe' has no +pipe"),
        ("layout+release", "arm 'layout+release': only graphs know the other layout"),
        ("vllm-governor", "arm 'vllm-governor' has no -governor"),
        ("grape+governor", "has no +governor"),
        ("", "no arm in ''"),
        ("vllm,vllm", "vllm stands twice"),
        ("grape:chunk", "write name=value"),
        ("grape:speed=9", "has no setting 'speed'; there are: admission"),
        ("grape:chunk=0", "'chunk' must be a number >= 1: 0"),
        ("grape:incremental=maybe", "'incremental' must be true or false"),
        ("vllm:max_num_batched_tokens=abc", "is a number from 1 to"),
        ("vllm:max_num_batched_tokens=true", "is a number from 1 to"),
        ("vllm-opt:max_num_seqs=0", "max_num_seqs is a number from 1"),
        ("grape:async_scheduling=7", "async_scheduling is true or false"),
        ("grape:backlog_share=Infinity", "'backlog_share' must be a number <= 1e+09"),
        ("vllm:chunk=8", "has no setting 'chunk'"),
        ("vllm,chunk=8", "no arm 'chunk=8'"),
        ("vllm-opt:order=first", "order is stage or program, not 'first'"),
        ("vllm-opt:speed=1", "enable_prefix_caching, long_prefill_token_threshold"),
        ("vllm-opt:speed=1", ", order"),
        ("grape:order=stage", "has no setting 'order'"),
        ("vllm-opt+pipe:order=stage", "has no setting 'order'"),
    ],
)
def test_what_is_no_arm_is_refused_with_what_there_is(text: str, said: str):
    with pytest.raises(ConfigError) as refused:
        parse_arms(text)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", PLAIN)
def test_each_mechanism_of_ours_can_be_taken_away_by_its_name(name: str):
    arm = parse_arm(f"grape-{name}")
    assert (arm.name, arm.kind, arm.attached) == (f"grape-{name}", "grape", True)
    policy = PolicyConfig.from_mapping(arm.grape)
    assert policy == PolicyConfig().but(**{name: PLAIN[name]})
    assert policy != PolicyConfig()
    # Plain values: they go to another process, and into the file.
    assert {type(value) for value in arm.grape.values()} <= {bool, str}


def test_every_switch_is_a_mechanism_that_can_be_taken_away():
    defaults = PolicyConfig()
    switches = {
        item.name
        for item in fields(PolicyConfig)
        if isinstance(getattr(defaults, item.name), bool | StrEnum)
    }
    # One only watches.
    assert switches - {"validate"} == set(PLAIN)


def test_mechanisms_and_settings_add_up():
    arm = parse_arm("grape-static-incremental+draft:chunk=4,max_num_seqs=8")
    assert arm.engine_args() == {
        "grape": {"static": False, "incremental": False, "chunk": 4},
        "speculative_config": DRAFT,
        "max_num_seqs": 8,
    }


def test_drafting_and_warming_are_extras_of_any_kind():
    drafting, tuned, warmed, short = parse_arms("grape+draft,vllm-opt+draft,vllm+warm,warm")
    assert drafting.engine_args() == {"speculative_config": DRAFT}
    assert (tuned.ranked, tuned.kind, tuned.warmed) == (True, "vllm-opt", False)
    assert tuned.engine["speculative_config"] == DRAFT
    assert (warmed.kind, warmed.warmed, warmed.engine_args()) == ("vllm", True, {})
    same = parse_arm("vllm-opt+warm")
    assert (short.kind, short.engine, short.warmed) == (same.kind, same.engine, same.warmed)
    assert parse_arm("warm+draft").engine == tuned.engine
    assert [arm.plain for arm in (drafting, tuned, warmed, short)] == [False] * 4
    assert all(arm.plain for arm in parse_arms("vllm,vllm-opt,grape,grape-static"))


def test_ratios_are_against_the_plainest_tuned_arm():
    assert tuned_name(parse_arms("vllm,warm,vllm-opt,grape")) == "vllm-opt"
    assert tuned_name(parse_arms("vllm,warm,grape")) == "warm"
    assert tuned_name(parse_arms("vllm,grape")) is None


def test_a_budget_is_given_to_tuned_arms_that_name_none():
    arms = parse_arms("vllm,vllm-opt,vllm-opt:max_num_batched_tokens=64,grape")
    assert [arm.budget for arm in with_tuning(arms, Tuning(96))] == [None, 96, 64, None]
    assert [arm.budget for arm in with_tuning(arms, Tuning())] == [None, None, 64, None]
    assert with_tuning(parse_arms("warm"), Tuning(96))[0].budget == 96
    default = parse_arms("vllm-opt:max_num_batched_tokens=none")
    assert [arm.budget for arm in with_tuning(default, Tuning(96))] == [None]
    assert [arm.name for arm in with_tuning(arms, Tuning(96))] == [arm.name for arm in arms]


def test_pipes_are_our_scheduler_without_our_policy():
    [arm] = with_tuning(parse_arms("vllm-opt+pipe"), Tuning(512))
    assert (arm.kind, arm.scheduler, arm.attached, arm.ranked) == ("vllm-opt", "grape", True, False)
    assert (arm.piped, arm.plain, arm.comparable, arm.budget) == (True, False, True, 512)
    args = arm.engine_args()
    policy = PolicyConfig.from_mapping(args.pop("grape"))
    assert args == {"enable_prefix_caching": True, "max_num_batched_tokens": 512}
    assert policy == PolicyConfig(**PLAIN).but(
        incremental=True,
        static=True,
        rule="hops",
        chunk=128,
        lump=128,
        near_steps=0,
        open_cap=policy.open_cap,
        prefill_cap=None,
    )
    # Nothing but the budget of a step limits how much of it is handed on at once.
    assert policy.open_cap >= 1 << 20
    assert {type(value) for value in arm.grape.values()} <= {bool, str, int, type(None)}
    assert parse_arm("vllm-opt+pipe:chunk=64").grape["chunk"] == 64


@pytest.mark.parametrize("kind", ["vllm", "vllm-opt", "grape"])
def test_release_and_layout_change_how_programs_run_and_no_engine(kind: str):
    plain, released, ordered = parse_arms(f"{kind},{kind}+release,{kind}+layout")
    assert plain.engine_args() == released.engine_args() == ordered.engine_args()
    assert (released.released, released.layout, released.comparable) == (True, False, True)
    assert (ordered.released, ordered.layout, ordered.comparable) == (False, True, False)
    assert not released.plain
    assert not ordered.plain


def test_layout_alone_is_the_tuned_one_with_it():
    short, long = parse_arms("layout,vllm-opt+layout")
    assert (short.kind, short.layout, short.ranked) == (long.kind, long.layout, long.ranked)
    assert tuned_name(parse_arms("layout,vllm-opt+pipe,vllm-opt,grape")) == "vllm-opt"


def test_ranked_arms_may_order_calls_by_program_first():
    arms = parse_arms("vllm-opt,vllm-opt:order=program,warm:order=program")
    assert [arm.order for arm in arms] == [None, "program", "program"]
    assert [arm.tuning.order for arm in arms] == ["stage", "program", "program"]
    assert [arm.order for arm in with_tuning(arms, Tuning(96))] == ["stage", "program", "program"]
    # The engine is the same.
    assert arms[0].engine_args() == arms[1].engine_args()


def test_an_order_is_given_to_ranked_arms_that_name_none():
    arms = parse_arms("vllm,vllm-opt,vllm-opt:order=stage,vllm-opt+pipe,grape")
    found = [arm.order for arm in with_tuning(arms, Tuning(None, "program"))]
    assert found == [None, "program", "stage", None, None]


def test_pieces_fit_into_a_step_beside_decodes():
    [arm] = with_tuning(parse_arms("vllm-opt+pipe"), Tuning(96))
    assert (arm.grape["chunk"], arm.grape["lump"]) == (48, 48)
    named = parse_arm("vllm-opt+pipe:max_num_batched_tokens=1")
    assert (named.grape["chunk"], named.grape["lump"]) == (1, 1)
    smaller = parse_arm("vllm-opt+pipe:max_num_batched_tokens=96,chunk=16")
    assert (smaller.grape["chunk"], smaller.grape["lump"]) == (16, 48)
    # Our own scheduler cuts prefill as it likes.
    assert parse_arm("grape:max_num_batched_tokens=96").grape == {}
