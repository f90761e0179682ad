"""The notebooks run from end to end, and what they claim their cells assert. Outputs that are saved in them are those of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


#: Where a long call said what it is at, and took it away in the end: that depends on the clock.
PROGRESS = {"text/plain": ""}


def kinds(notebook: object) -> list[list[str]]:
    """What the cells put out, by its kind."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]  # type: ignore[attr-defined]
    return [[output.output_type for output in cell.outputs if output.get("data") != PROGRESS] for cell in cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore")
def test_notebooks(path: Path) -> None:
    saved = nbformat.read(path, as_version=4)
    run = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(run, timeout=300, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert kinds(run) == kinds(saved), "outputs are saved"
    assert any(kinds(saved)) and all(cell.execution_count for cell in saved.cells if cell.cell_type == "code")


def test_there_are_notebooks() -> None:
    assert len(NOTEBOOKS) == 3
