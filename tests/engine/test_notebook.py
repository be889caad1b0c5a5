"""The notebooks run from top to bottom, each in a kernel of its own."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = ["langgraph", "quickstart"]

# Leaves room for fetching and converting the model on a machine's first run.
CELL_LIMIT_S = 900


def read(name: str) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return notebook


def run(name: str) -> list[nbformat.NotebookNode]:
    """Its cells with code, executed without an error."""
    client = NotebookClient(
        read(name),
        timeout=CELL_LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
    )
    code = [cell for cell in client.execute()["cells"] if cell["cell_type"] == "code"]
    assert all(out["output_type"] != "error" for cell in code for out in cell["outputs"])
    return code


def printed(cell: nbformat.NotebookNode) -> str:
    return "".join(out["text"] for out in cell["outputs"] if out.get("name") == "stdout")


def shown(cell: nbformat.NotebookNode) -> str:
    """The HTML that a cell ends with."""
    return "".join(out.get("data", {}).get("text/html", "") for out in cell["outputs"])


def test_every_notebook_is_known():
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_outputs_are_stripped(name: str):
    for cell in read(name)["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_the_quickstart_shows_tokens_prefilled_ahead():
    code = run("quickstart")
    tables = [printed(cell) for cell in code if "show(state" in cell["source"]]
    assert len(tables) == 2  # after invoke and after ainvoke
    for table in tables:
        rows = {row.split()[0]: row.split()[1:] for row in table.splitlines() if row.split()}
        for node in ("summarize", "title"):
            prompt, ahead, answer = map(int, rows[node])
            assert 0 < ahead < prompt
            assert answer > 0
        assert int(rows["extract"][1]) == 0


def test_learned_and_traced_prompts_are_explained():
    code = {cell["id"]: cell for cell in run("langgraph")}
    assert "no run was seen yet" in shown(code["attach"])
    learned = shown(code["learn"])
    assert "learned" in learned
    assert "0 (0%) of them prefilled ahead" in learned
    # What of the third run was found again depends on the answers of the first two.
    assert "last 3 runs" in shown(code["gain"])
    text = printed(code["forms"])
    ahead = re.search(r"(\d+) tokens prefilled ahead", text)
    assert ahead is not None
    assert int(ahead[1]) > 0
    said = " ".join(text.split())
    assert "{topic} stands before" in said
    assert "{notes_text} stands behind the answer of 'write'" in said
    better = shown(code["better"])
    assert "outline -&gt; write" in better
    assert "stands before" not in better
    assert "stands behind" not in better
