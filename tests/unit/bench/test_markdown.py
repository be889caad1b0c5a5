"""Figures of a comparison as Markdown."""

from __future__ import annotations

import json
from typing import Any

from grape_lc.bench.html_input import parse_document
from grape_lc.bench.markdown import to_markdown
from tests.unit.bench.documents import document, failed_run, pair, regimes

GOLDEN = """\
### Run

|  |  |
| --- | ---: |
| command | grape bench --workloads code --repeats 2 |
| date | 2026-02-03 |
| machine | A Processor, 2 cores, cpu, Linux |
| Python | 3.11.2 |
| versions | vllm 0.32.0, torch 2.13.0 |
| model | a-model |
| equal answers | 17 of 18 are letter by letter those of vllm-opt; not all: grape 17 of 18 |

### code, 0.5 of saturation (0.5 programs/s)

| figure | vllm-opt | grape |
| --- | ---: | ---: |
| agentic ITL, mean (ms) | 40.1 | 20.0 |
| switch gap, max (ms) | 512.0 | - |
| final answer, p95 (s) | 2.13 | 1.50 |
| output tokens per second | 33.3 | 40.0 |

vllm-opt failed in repeat 3: EngineDiedError: gone \\| \\`now\\` &lt;here>

Ratios against vllm-opt over repeats [95%]; above 1 is better:

| figure | grape |
| --- | ---: |
| agentic ITL, mean (ms) | ▲ 2.005 [1.900, 2.100] |
| final answer, p95 (s) | ▼ 0.950 [0.900, 0.990] |
| output tokens per second | 1.010 [0.990, 1.030] |
| TTFT, mean (ms) | 0.970 (n = 1) |
| pairs (n) | 8 |

### Where it does not help

| variant | against | figure | where | ratio [95%] | pairs |
| --- | ---: | ---: | ---: | ---: | ---: |
| grape | vllm-opt | final answer, p95 (s) | code, 0.5 of saturation (0.5 programs/s) | 0.950 \
[0.900, 0.990] | 8 repeats |

Ratios below 1 that have no interval: 1.
"""


def small() -> dict[str, Any]:
    made = document(("vllm-opt", "grape"), raw=False)
    figures = (
        {
            "agentic_itl_ms": {"mean": 40.123},
            "switch_gap_ms": {"max": 512.0},
            "answer_s": {"p95": 2.126},
            "tokens_per_s": 33.333,
        },
        {"agentic_itl_ms": {"mean": 20.01}, "answer_s": {"p95": 1.5}, "tokens_per_s": 40.0},
    )
    for entry, metrics in zip(made["metrics"], figures, strict=True):
        entry["metrics"] = metrics
    made["runs"] = [failed_run("vllm-opt", "EngineDiedError: gone |\n`now` <here>", repeat=3)]
    made["pairs"] = [
        pair("grape", "agentic_itl_ms.mean", 2.005, (1.9, 2.1)),
        pair("grape", "answer_s.p95", 0.95, (0.9, 0.99)),
        pair("grape", "tokens_per_s", 1.01, (0.99, 1.03)),
        pair("grape", "ttft_ms.mean", 0.97, None, n=1),
    ]
    return made


def text_of(*documents: dict[str, Any]) -> str:
    return to_markdown([parse_document(json.loads(json.dumps(d)), "") for d in documents])


def test_the_whole_text():
    assert text_of(small()) == GOLDEN


def test_every_line_of_a_table_has_as_many_cells():
    made = small()
    made["pairs"].append(pair("vllm | not", "answer_s.p95", 0.5, (0.4, 0.6)))
    tables = [part for part in text_of(made).split("\n\n") if part.startswith("|")]
    assert len(tables) == 5
    for table in tables:
        counts = {line.replace("\\|", "").count("|") for line in table.splitlines()}
        assert len(counts) == 1


def test_losses_of_other_variants_stand_apart():
    made = small()
    made["pairs"] = [pair("vllm", "answer_s.p95", 0.5, (0.4, 0.6))]
    text = text_of(made)
    assert "No ratio of grape below 1 has an interval that leaves out 1." in text
    assert "Other variants:" in text.partition("### Where it does not help")[2]


def test_without_ratios_nothing_is_claimed():
    made = small()
    made["pairs"] = []
    assert text_of(made).endswith("Nothing can be said: there is no ratio.\n")


def test_several_files_and_files_without_cells():
    text = text_of(small(), {"regimes": regimes()}, {"meta": {}, "runs": []})
    assert "### Run 1\n" in text
    assert "### Run 3\n" in text or text.rstrip().endswith("### Run 3")
    assert text.count("### Where it does not help") == 1
