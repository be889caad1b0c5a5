import io

from rich.console import Console

from grape_lc.bench.collect import Live
from grape_lc.bench.progress import RunProgress


def drive(console: Console, clock: list[float]) -> None:
    with RunProgress(console, ["run 1 vllm", "run 2 grape"], 3, lambda: clock[0]) as progress:
        progress.begin(0)
        for second in range(1, 13):
            clock[0] = float(second)
            progress.tick(0, second // 5, Live(10 * second, 20.0 + second))
        progress.end(0)


def test_without_a_terminal_it_prints_plain_lines_now_and_then():
    out = io.StringIO()
    drive(Console(file=out, width=200), [0.0])
    assert out.getvalue().splitlines() == [
        "run 1 vllm (running): 0/3 programs, 0 tokens, agentic ITL -, 0 s",
        "run 1 vllm (running): 1/3 programs, 50 tokens, agentic ITL 25.0 ms, 5 s",
        "run 1 vllm (running): 2/3 programs, 100 tokens, agentic ITL 30.0 ms, 10 s",
        "run 1 vllm (done): 3/3 programs, 120 tokens, agentic ITL 32.0 ms, 12 s",
    ]


def test_on_a_terminal_it_draws_a_table_of_all_runs():
    out = io.StringIO()
    drive(Console(file=out, width=120, force_terminal=True), [0.0])
    last = out.getvalue().rsplit("run 1 vllm", 1)[1]
    assert "3/3 programs" in last
    assert "120 tokens" in last
    assert "run 2 grape" in last
    assert "0/3 programs" in last


def test_the_terminal_is_restored_after_an_error():
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True)
    try:
        with RunProgress(console, ["run 1 vllm"], 3) as progress:
            progress.begin(0)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    assert out.getvalue().endswith("\x1b[?25h")  # the cursor is shown again
