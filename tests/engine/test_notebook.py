"""The notebooks run from top to bottom, one after the other on one engine.

A kernel is shared, since an engine takes long to start, but none of its names are.
"""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NAMES = ["langgraph", "quickstart"]

CELL_LIMIT_S = 300

# What closes the engines at the end; in front of it the next notebook can use them.
LAST = "engine.close()"


def read(name: str) -> nbformat.NotebookNode:
    notebook: nbformat.NotebookNode = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    return notebook


@pytest.fixture(scope="module")
def executed(
    model_path: str, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[nbformat.NotebookNode]]:
    """Cells with code of each notebook, executed without an error."""
    code = {name: [c for c in read(name)["cells"] if c["cell_type"] == "code"] for name in NAMES}
    cells = []
    for name in NAMES:
        *body, last = code[name]
        assert LAST in last["source"]
        cells += [nbformat.v4.new_code_cell("%reset -f"), *body]
    cells.append(code[NAMES[-1]][-1])
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=cells),
        timeout=CELL_LIMIT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPE_LC_GRAPHS", str(tmp_path_factory.mktemp("graphs")))
        client.execute()
    assert all(out["output_type"] != "error" for cell in cells for out in cell["outputs"])
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


def test_the_quickstart_shows_tokens_prefilled_ahead(executed):
    code = executed["quickstart"]
    tables = [printed(cell) for cell in code if "show(state" in cell["source"]]
    assert len(tables) == 2  # after invoke and after ainvoke
    ahead_of_all = 0
    for table in tables:
        rows = {row.split()[0]: row.split()[1:] for row in table.splitlines() if row.split()}
        for node in ("summarize", "title"):
            prompt, ahead, answer = map(int, rows[node])
            assert 0 <= ahead < prompt
            assert answer > 0
            ahead_of_all += ahead
        assert int(rows["extract"][1]) == 0
    assert ahead_of_all > 0  # of how many of the four prompts is up to the machine's load


def test_learned_and_traced_prompts_are_explained(executed):
    code = {cell["id"]: cell for cell in executed["langgraph"]}
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
