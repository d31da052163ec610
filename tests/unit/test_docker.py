"""The Dockerfile and the compose file, read and held to the tree: no image is built where the tests run."""

from __future__ import annotations

import fnmatch
import importlib.resources
import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest
import yaml

from studio.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
Instruction = tuple[str, str]


def stages() -> dict[str, list[Instruction]]:
    """Return stage name -> its instructions, those of the stages that it stands on first."""
    found: dict[str, list[Instruction]] = {}
    name = ""
    for word, rest in instructions((ROOT / "Dockerfile").read_text()):
        if word == "FROM":
            parent, name = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()  # type: ignore[union-attr]
            found[name] = list(found.get(parent, []))
        else:
            found[name].append((word, rest))
    return found


def instructions(text: str) -> list[Instruction]:
    """Return (word, rest) per instruction, comments gone and continued lines joined."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in joined.splitlines()]


def environment(stage: list[Instruction]) -> dict[str, str]:
    pairs = [pair for word, rest in stage if word == "ENV" for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)


def makefile_setup(device: str) -> str:
    """Return the install line of the Makefile with its defaults and `device` filled in."""
    text = (ROOT / "Makefile").read_text()
    values = dict(re.findall(r"^(\w+) \?= ?(.*)$", text, re.M))
    line = re.search(r"^SETUP = (.*)$", text, re.M)
    assert line is not None
    return re.sub(r"\$\((\w+)\)", lambda name: {**values, "DEVICE": device}[name[1]], line[1])


TARGETS = {"cpu": "cpu", "gpu": "cuda"}


@pytest.mark.parametrize(("target", "device"), TARGETS.items())
def test_an_image_is_installed_by_the_line_of_the_makefile(target: str, device: str) -> None:
    runs = [rest for word, rest in stages()[target] if word == "RUN"]
    installs = [run for run in runs if "apt-get" not in run]
    assert installs == [makefile_setup(device)]
    assert not any("pip install" in run for run in runs)


@pytest.mark.parametrize("target", TARGETS)
def test_every_copied_path_exists_and_is_let_through_by_dockerignore(target: str) -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and line[0] != "#"]
    assert rules[0] == "*"
    allowed = [rule[1:] for rule in rules if rule.startswith("!")]
    for word, rest in stages()[target]:
        if word != "COPY":
            continue
        paths = [part for part in rest.split() if not part.startswith("--")][:-1]
        for path in paths:
            assert (ROOT / path).exists(), path
            assert any(fnmatch.fnmatch(path, rule) or path.startswith(rule + "/") for rule in allowed), path


@pytest.mark.parametrize("target", TARGETS)
def test_what_the_installer_reads_is_copied_before_it_runs(target: str) -> None:
    stage = stages()[target]
    install = next(
        index for index, (word, rest) in enumerate(stage) if word == "RUN" and "studio.setup" in rest
    )
    copied = " ".join(rest for word, rest in stage[:install] if word == "COPY")
    needed = ["pyproject.toml", "requirements.txt", "requirements-cpu.lock", "LICENSE", "README.md"]
    for path in [*needed, "studio/__init__.py", "studio/setup"]:
        assert path in copied.split()


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_does_not_run_as_root(target: str) -> None:
    users = [rest for word, rest in stages()[target] if word == "USER"]
    assert users[-1] == "studio"


@pytest.mark.parametrize("target", TARGETS)
def test_an_image_asks_its_own_health(target: str) -> None:
    checks = [rest for word, rest in stages()[target] if word == "HEALTHCHECK"]
    probe = json.loads(checks[-1].split("CMD ", 1)[1])
    port = environment(stages()[target])["STUDIO_PORT"]
    assert probe[0] == ".venv/bin/python" and f"127.0.0.1:{port}/health" in probe[-1]
    compile(probe[-1], "healthcheck", "exec")


@pytest.mark.parametrize("target", TARGETS)
def test_weights_and_library_lie_in_volumes(target: str) -> None:
    stage = stages()[target]
    volumes = [json.loads(rest) for word, rest in stage if word == "VOLUME"][-1]
    assert environment(stage)["STUDIO_DATA_DIR"] in volumes
    assert "/models" in volumes


@pytest.mark.parametrize(("target", "device"), TARGETS.items())
def test_an_image_sets_only_settings_that_exist(target: str, device: str) -> None:
    values = environment(stages()[target])
    ours = {
        name[len("STUDIO_") :].lower(): value for name, value in values.items() if name.startswith("STUDIO_")
    }
    assert Settings.model_validate(ours).device == device
    assert ours["host"] == "0.0.0.0"


@pytest.fixture(scope="module")
def compose_schema() -> jsonschema.protocols.Validator:
    """The Compose Specification's own schema, as check-jsonschema brings it along."""
    folder = importlib.resources.files("check_jsonschema") / "builtin_schemas" / "vendor"
    schema = json.loads((folder / "compose-spec.json").read_text())
    return jsonschema.validators.validator_for(schema)(schema)


def test_compose_file_fits_the_compose_schema(compose_schema: jsonschema.protocols.Validator) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    compose_schema.validate(compose)
    compose["services"]["grafana"]["port"] = ["3000:3000"]  # no such word
    compose["services"]["prometheus"]["ports"] = "9090:9090"  # no list
    found = {".".join(map(str, error.path)) for error in compose_schema.iter_errors(compose)}
    assert {"services.grafana", "services.prometheus.ports"} <= found


def test_compose_starts_one_target_per_profile_and_keeps_the_library() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    for target in TARGETS:
        service = compose["services"][f"studio-{target}"]
        assert service["profiles"] == [target] and service["build"]["target"] == target in stages()
        mounted = dict(reversed(volume.removesuffix(":ro").split(":")) for volume in service["volumes"])
        volumes = [json.loads(rest) for word, rest in stages()[target] if word == "VOLUME"][-1]
        assert sorted(mounted) == sorted(volumes) and mounted["/data"] in compose["volumes"]
        passed = {name for name, value in service["environment"].items() if value is None}
        sign_in = {f"STUDIO_OIDC_{name}" for name in ("ISSUER", "CLIENT_ID", "CLIENT_SECRET", "ADMINS")}
        assert passed == {"STUDIO_API_KEY", "STUDIO_ADMIN_PASSWORD", "HF_ENDPOINT"} | sign_in
        for name in service["environment"].keys() - {"HF_ENDPOINT"}:
            assert name.removeprefix("STUDIO_").lower() in Settings.model_fields


def test_the_gpu_service_asks_for_a_gpu() -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    devices = compose["services"]["studio-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices[0]["capabilities"] == ["gpu"]
    assert "deploy" not in compose["services"]["studio-cpu"]
