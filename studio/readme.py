"""Renders the parts of the READMEs that come from the code: `make readme` writes them, a test compares.

Each part stands between `<!-- NAME -->` and `<!-- /NAME -->`. Does not write anything else.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from studio.settings import ROOT, extra, gpu_default, table

READMES = ("README.md", "README_zh.md")
HEADS = {
    "knobs": ("| flag | default | range | unit | what it does | applies |", 6),
    "knobs-zh": ("| 参数 | 默认值 | 范围 | 单位 | 何时生效 |", 5),
}
APPLIES_ZH = {"restart": "重启后", "next request": "下一次请求", "next step": "下一步", "at once": "立即"}
TREE_WIDTH = 30


def knobs() -> str:
    """Return the table of settings in English."""
    rows = [
        (*_start(name, info), info.description or "", extra(info, "applies"))
        for name, info in table().items()
    ]
    return _table("knobs", rows)


def knobs_zh() -> str:
    """Return the table of settings in Chinese; what each does is said by `python app.py --help`."""
    rows = [(*_start(name, info), APPLIES_ZH[extra(info, "applies")]) for name, info in table().items()]
    return _table("knobs-zh", rows).replace("on a GPU", "（GPU）")


def tree() -> str:
    """Return the tree of the code: a line for each room and file, the first sentence of its docstring."""
    return "\n".join(["```", *_tree_lines(), "```"])


PARTS: dict[str, Callable[[], str]] = {"knobs": knobs, "knobs-zh": knobs_zh, "tree": tree}


def rendered(text: str) -> str:
    """Return `text` with every known part filled in anew."""
    for name, render in PARTS.items():
        part = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        if part.search(text):
            text = part.sub(partial(_filled, body=render()), text)
    return text


def flag(name: str) -> str:
    """Return a setting's name as its flag."""
    return f"`--{name.replace('_', '-')}`"


def default(info: FieldInfo) -> str:
    """Return a default as a person would type it, paths relative to the repository."""
    if info.default is None:
        return "unset"
    value = str(info.default)
    if value.startswith(str(ROOT)):
        value = str(Path(value).relative_to(ROOT))
    on_gpu = gpu_default(info)
    return (f"`{value}`" if value else "") + (f"; `{on_gpu}` on a GPU" if on_gpu else "")


def bounds(info: FieldInfo) -> str:
    """Return the choices or the least and greatest value of a setting; empty where there are none."""
    if get_origin(info.annotation) is Literal:
        return ", ".join(str(choice) for choice in get_args(info.annotation))
    least = [row.ge for row in info.metadata if hasattr(row, "ge")]
    most = [row.le for row in info.metadata if hasattr(row, "le")]
    return f"{least[0]} to {most[0]}" if least and most else ""


@cache
def first_sentence(path: Path) -> str:
    """Return the first sentence of a module's docstring, without its full stop."""
    words = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split())
    return re.split(r"\.(?:\s|$)", words)[0]


def _filled(found: re.Match[str], body: str) -> str:
    return f"{found[1]}{body}\n{found[2]}"


def _start(name: str, info: FieldInfo) -> tuple[str, str, str, str]:
    return flag(name), default(info), bounds(info), extra(info, "unit")


def _table(name: str, rows: Sequence[Sequence[str]]) -> str:
    head, columns = HEADS[name]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([head, "|" + " --- |" * columns, *lines])


def _tree_lines() -> Iterator[str]:
    app = ROOT / "app.py"
    if app.exists():
        yield _line(0, "app.py", first_sentence(app))
    yield "studio/"
    yield from _folder_lines(ROOT / "studio", 1)


def _folder_lines(folder: Path, depth: int) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        if path.name not in ("__init__.py", "__main__.py"):
            yield _line(depth, path.name, first_sentence(path))
    for room in sorted(path for path in folder.iterdir() if any(path.glob("*.py"))):
        about = room / "__init__.py"
        yield _line(depth, room.name + "/", first_sentence(about) if about.exists() else "")
        yield from _folder_lines(room, depth + 1)


def _line(depth: int, name: str, about: str) -> str:
    return ("  " * depth + name).ljust(TREE_WIDTH - 1) + " " + about


def main() -> int:
    """Write the parts into the READMEs."""
    for name in READMES:
        path = ROOT / name
        path.write_text(rendered(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
