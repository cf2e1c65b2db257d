"""Execute the notebook of the documentation, and turn it into Markdown for the site.

python docs/notebook.py        # run docs/notebook.ipynb and write its outputs into it
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent / "notebook.ipynb"
_TITLE = re.compile(r"\A# .*\n")
_CELL_SECONDS = 600  # until a cell that hangs is given up
# Folders that Jupyter would have in the home folder.
_OWN_FOLDERS = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")


def executed(notebook: Any, folder: Path) -> Any:
    """Return a notebook with the outputs of a new run.

    Args:
        notebook: The notebook.
        folder: Where it runs; the kernel's own files go there too.

    Returns:
        A copy without the times of the cells.
    """
    import nbformat
    from nbclient import NotebookClient

    fresh = nbformat.from_dict(notebook)
    with _environment({name: str(folder / ".jupyter") for name in _OWN_FOLDERS}):
        client = NotebookClient(
            fresh,
            timeout=_CELL_SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        )
        client.execute()
    for cell in fresh.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", []):
            if "text/html" in output.get("data", {}):  # of which the text is a longer form
                output.data.pop("text/plain", None)
    fresh.metadata = {"kernelspec": notebook["metadata"]["kernelspec"]}
    return fresh


def markdown(notebook: Mapping[str, Any]) -> str:
    """Return a notebook as Markdown: its text, its code and the outputs, without the title.

    Args:
        notebook: The notebook as it is in its file.
    """
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(_TITLE.sub("", source).strip())
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            parts.append(_output(output))
    return "\n\n".join(parts) + "\n"


def _output(output: Mapping[str, Any]) -> str:
    """Return an output in the best form that it has: a picture, HTML or text."""
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = {kind: "".join(lines) for kind, lines in output["data"].items()}
    if "image/png" in data:
        picture = data["image/png"].replace("\n", "")
        return f'<img alt="The plot of the cell above" src="data:image/png;base64,{picture}">'
    if "text/html" in data:
        # Markdown ends a block of HTML at an empty line, and takes indented lines for code.
        html = data["text/html"].replace('border="1" class="dataframe"', "")  # the site's own style
        lines = []
        for line in html.splitlines():
            if line.strip():
                lines.append(line.strip())
        return "<div>\n" + "\n".join(lines) + "\n</div>"
    return f"```text\n{data['text/plain']}\n```"


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for a while."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def main() -> None:
    """Run the notebook and write its outputs."""
    import nbformat

    with tempfile.TemporaryDirectory() as folder:
        fresh = executed(nbformat.read(NOTEBOOK, as_version=4), Path(folder))
    nbformat.write(fresh, NOTEBOOK)


if __name__ == "__main__":
    main()
