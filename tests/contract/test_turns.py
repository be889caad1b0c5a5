"""Tenants take turns on vLLM's real scheduler, whoever came first."""

from __future__ import annotations

from tests.contract.simulation import answer

PROMPT = list(range(100, 400))
OTHER = list(range(500, 900))


def test_a_flood_of_one_tenant_does_not_keep_out_another(simulate):
    s = simulate(step_tokens=64, rows=4)
    for number in range(12):
        prompt = [number + 3] * 100
        s.call(f"a{number}", prompt, n=3, program=f"p{number}", hint={"tenant": "a"})
    while len(s.finished) < 2:
        s.step()
    s.call("b", OTHER[:100], n=3, program="other", hint={"tenant": "b"})
    while "b" not in s.finished:
        s.step()
    before = sum(name.startswith("a") for name in s.finished)
    assert before <= 2 + 4 + 1, "those that ran when it came, and one turn"
    s.idle()
    assert s.answers["b"] == answer(OTHER[:100], 3)
