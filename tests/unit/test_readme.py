"""The READMEs say what is: tables and tree come from the code, commands and links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import yaml

from studio import readme
from studio.settings import Settings
from studio.setup.machine import PYTHONS

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("README.md", "README_zh.md")
PARTS = {"README.md": ("tree", "knobs"), "README_zh.md": ("tree", "knobs-zh")}


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(name: str) -> list[list[str]]:
    """Return the words of each command in the README's sh blocks, continued lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text_of(name), re.S | re.M)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [shlex.split(part) for line in lines for part in line.split(" && ")]


def commands_of(name: str, program: str) -> list[list[str]]:
    found = [words[1:] for words in commands(name) if words[0] == program]
    assert found, f"{name} shows no {program}"
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_that_come_from_the_code_are_fresh(name: str) -> None:
    text = text_of(name)
    for part in PARTS[name]:
        assert f"<!-- {part} -->" in text and f"<!-- /{part} -->" in text
    assert readme.rendered(text) == text, "stale: run `make readme`"


def test_every_setting_has_a_row_in_both_languages() -> None:
    for setting in Settings.model_fields:
        row = f"| {readme.flag(setting)} |"
        assert row in text_of("README.md") and row in text_of("README_zh.md")


def test_every_file_of_the_code_has_a_line_in_the_tree_that_says_what_it_is() -> None:
    lines = readme.tree().splitlines()
    for path in (ROOT / "studio").rglob("*.py"):
        name = path.parent.name + "/" if path.name == "__init__.py" else path.name
        if path.name == "__main__.py" or path == ROOT / "studio" / "__init__.py":
            continue
        said = [line.split(name, 1)[1].strip() for line in lines if line.strip().startswith(name + " ")]
        assert any(said), f"{path.relative_to(ROOT)} has no first sentence"


def test_the_two_languages_show_the_same_commands() -> None:
    english, chinese = (
        [[words[0], *(word for word in words if word.startswith("-"))] for words in commands(name)]
        for name in NAMES
    )
    assert english == chinese


HEADINGS = {
    "CosyVoice Studio": "CosyVoice Studio",
    "Start": "开始",
    "Set-up": "安装",
    "Containers and Spaces": "容器与 Spaces",
    "Who may look after it": "谁可以管理",
    "Before a setting is changed": "更改设置之前",
    "Where memory or places run out": "内存或位置不足时",
    "Official weights": "官方权重",
    "Several models at once": "同时使用多个模型",
    "API": "接口",
    "Speaking": "朗读",
    "Clips and takes that are listened to": "听一听录音和合成结果",
    "Scripts and takes": "脚本与录音",
    "Listening tests": "听音测试",
    "How a sentence becomes sound": "一句话怎样变成声音",
    "The code": "代码",
    "Settings": "设置",
    "Measured": "实测",
    "Limits": "局限",
    "Consent": "同意",
    "Licences": "许可证",
}
"""Each heading and its translation."""


def chapters(name: str) -> list[tuple[str, str]]:
    """Each heading with its marks, and what stands below it; blocks of code and what is made from it left out."""
    text = re.sub(r"<!-- (\S+) -->.*?<!-- /\1 -->|```.*?```|\A---.*?^---$", "", text_of(name), flags=re.S | re.M)
    parts = re.split(r"^(#+ .*)$", text, flags=re.M)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


def test_the_two_languages_have_the_same_headings_in_the_same_order() -> None:
    english, chinese = ([heading for heading, _ in chapters(name)] for name in NAMES)
    marks, names = zip(*(heading.split(" ", 1) for heading in english), strict=True)
    assert chinese == [f"{mark} {HEADINGS.get(name, name)}" for mark, name in zip(marks, names, strict=True)]


@pytest.mark.parametrize("heading", HEADINGS)
def test_a_chapter_shows_the_same_tables_links_and_names_in_both_languages(heading: str) -> None:
    english, chinese = (
        next(text for title, text in chapters(name) if title.lstrip("# ") == wanted)
        for name, wanted in zip(NAMES, (heading, HEADINGS[heading]), strict=True)
    )
    assert shown(english) == shown(chinese)


def shown(text: str) -> tuple[list[int], set[str], set[str]]:
    """Cells in each line of its tables; targets of links but for the other language; names between backticks.

    What is quoted as an example, with a space or in Chinese, is another in each language.
    """
    cells = [line.count("|") for line in text.splitlines() if line.startswith("|")]
    links = set(re.findall(r"\]\(([^)]+)\)", text)) - set(NAMES)
    return cells, links, {name for name in re.findall(r"`([^`\n]+)`", text) if name.isascii() and ": " not in name}


@pytest.mark.parametrize("name", NAMES)
def test_every_command_is_of_a_kind_that_is_checked(name: str) -> None:
    programs = {words[0] for words in commands(name)}
    assert programs == {"git", "cd", "make", ".venv/bin/python", "docker", "curl"}


@pytest.mark.parametrize("name", NAMES)
def test_every_make_target_exists_and_its_flags_are_settings(name: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    for target, *options in commands_of(name, "make"):
        assert target in targets
        for flag in re.findall(r"--([a-z-]+)", " ".join(options)):
            assert flag.replace("-", "_") in Settings.model_fields


@pytest.mark.parametrize("name", NAMES)
def test_every_composed_profile_exists(name: str) -> None:
    services = yaml.safe_load(text_of("docker-compose.yml"))["services"].values()
    profiles = {profile for service in services for profile in service["profiles"]}
    asked = {words[words.index("--profile") + 1] for words in commands_of(name, "docker")}
    assert asked == profiles


@pytest.mark.parametrize("name", NAMES)
def test_every_curl_asks_a_route_that_the_service_has(name: str) -> None:
    routes = service_routes()
    for words in commands_of(name, "curl"):
        path = next(word for word in words if word.startswith("http://127.0.0.1:7860"))
        named = words[words.index("-X") + 1] if "-X" in words else None
        method = named or ("POST" if {"-d", "-F"} & set(words) else "GET")
        path = path.removeprefix("http://127.0.0.1:7860")
        assert any(method == verb and re.fullmatch(pattern, path) for verb, pattern in routes), (method, path)


def service_routes() -> list[tuple[str, str]]:
    """Return (method, pattern of the path) for every route that a decorator in studio/api names."""
    found = []
    for source in (ROOT / "studio" / "api").glob("*.py"):
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                verb, path = node.func.attr.upper(), node.args[0]
                if verb in ("GET", "POST", "PATCH", "DELETE") and isinstance(path, ast.Constant):
                    found.append((verb, re.sub(r"\{[^}]*\}", "[^/]+", str(path.value))))
    return found


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md"])
def test_every_link_into_the_repository_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)", text_of(name)):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


DOCUMENTS = sorted(
    str(path.relative_to(ROOT))
    for place in ("*.md", "docs/**/*.md", "studio/**/*.md", "assets/**/*.md")
    for path in ROOT.glob(place)
)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_test_that_is_cited_exists(name: str) -> None:
    """`test_file`, `tests/room/test_file.py`, `...::test_name`; and `test_file`: *words* of a test's name in it."""
    for file, test, words in re.findall(
        r"`(?:tests/)?(?:\w+/)?(test_\w+)(?:\.py)?(?:::(\w+))?`(?::? \*([^*\n]+)\*)?", text_of(name)
    ):
        (source,) = (ROOT / "tests").glob(f"*/{file}.py")
        names = re.findall(r"def (test_\w+)", source.read_text(encoding="utf-8"))
        assert not test or test in names, f"{file} has no {test}"
        assert any(words.replace(" ", "_") in known for known in names), f"{file} has no test of: {words}"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_module_that_is_run_exists_and_has_the_options_that_are_shown(name: str) -> None:
    written = re.sub(r"<!-- (\S+) -->.*?<!-- /\1 -->", "", text_of(name), flags=re.S)
    for module, words in re.findall(r"python -m ((?:studio|tests)[a-z0-9_.]*)(?=[\s`])([^`\n]*)", written):
        place = ROOT / module.replace(".", "/")
        source = next(path for path in (place.with_suffix(".py"), place / "__main__.py") if path.exists())
        for option in re.findall(r"--([a-z]+(?:-[a-z]+)*)", words):
            known = f'"--{option}"' in source.read_text(encoding="utf-8")
            assert known or option.replace("-", "_") in Settings.model_fields, f"{module} has no --{option}"


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md"])
def test_every_file_that_is_named_exists(name: str) -> None:
    """Names like `engine/scheduler.py`, from the repository's root or from studio/."""
    for path in re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|lock|toml|json|sql))(?:::\w+)?`", text_of(name)):
        assert (ROOT / path).exists() or (ROOT / "studio" / path).exists(), path


def test_a_space_finds_what_the_front_matter_promises() -> None:
    front = yaml.safe_load(text_of("README.md").split("---")[1])
    assert front["sdk"] == "gradio"
    assert f"gradio=={front['sdk_version']}\n" in text_of("requirements.txt")
    assert tuple(int(part) for part in front["python_version"].split(".")) in PYTHONS
    assert (ROOT / front["app_file"]).exists()
    assert len(front["short_description"]) <= 60  # Hugging Face refuses longer ones
    assert front["license"] == "apache-2.0" and "Apache License" in text_of("LICENSE")
