"""The installer: what it refuses, what it remembers and what it asks pip for. pip itself is a script here."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from studio.setup import __main__ as command
from studio.setup import debian, pip, registration, steps
from studio.setup.machine import (
    GIB,
    SetupProblem,
    check_disk,
    check_memory,
    check_platform,
    find_device,
    find_python,
    memory_bytes,
)
from studio.setup.place import Place
from studio.setup.steps import Step, pending, plan

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A repository of four files, and an environment whose Python writes its arguments to `calls`."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "requirements.txt").write_text("vllm==0.32.0\n")
    (tmp_path / "requirements-cpu.lock").write_text(
        "# note\ntorch==2.13.0+cpu  # the CPU build\nnumpy==2.3.5\n"
    )
    (tmp_path / "requirements-dev.lock").write_text("pytest==9.2.0\n")
    place = Place(tmp_path, tmp_path / "venv")
    place.python.parent.mkdir(parents=True)
    script(place, "exit 0")
    return place


def script(place: Place, last: str) -> None:
    """Make the environment's Python a script that notes its arguments and then does `last`."""
    place.python.write_text(f'#!/bin/sh\necho "$@" >> {place.root}/calls\n{last}\n')
    place.python.chmod(0o755)


def calls(place: Place) -> list[str]:
    path = place.root / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_a_small_disk_is_refused_with_what_is_needed_and_what_is_there() -> None:
    with pytest.raises(SetupProblem, match=r"cuda set needs 30 GiB.*has 12\.5 GiB.*pip cache purge"):
        check_disk(Path("/somewhere"), "cuda", int(12.5 * GIB))
    check_disk(Path("/somewhere"), "cpu", 12 * GIB)


def test_little_memory_is_refused_and_the_way_round_it_is_named() -> None:
    with pytest.raises(SetupProblem, match=r"has 2\.0 GiB.*--ignore-limits"):
        check_memory(2 * GIB)
    check_memory(16 * GIB)


def test_a_container_limit_counts_as_the_memory(tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text("1048576\n")
    assert memory_bytes(str(limit)) == 1 << 20
    limit.write_text("max\n")
    assert memory_bytes(str(limit)) == memory_bytes(str(tmp_path / "absent")) > 1 << 20


@pytest.mark.parametrize(
    ("system", "machine"), [("Darwin", "arm64"), ("Windows", "AMD64"), ("Linux", "riscv64")]
)
def test_a_platform_without_vllm_is_refused(system: str, machine: str) -> None:
    with pytest.raises(SetupProblem, match=f"this is {system} on {machine}"):
        check_platform(system, machine)


def test_linux_on_x86_64_is_accepted() -> None:
    check_platform("Linux", "x86_64")


def test_an_nvidia_device_file_means_cuda(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    assert find_device(str(tmp_path)) == "cuda"


def test_control_files_of_a_driver_without_a_gpu_mean_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setenv("PATH", str(tmp_path))  # no nvidia-smi
    assert find_device(str(tmp_path)) == "cpu"


def test_a_gpu_of_wsl_is_found_without_a_device_file_or_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU 0: NVIDIA GeForce RTX 4090'\n")
    smi.chmod(0o755)
    (tmp_path / "dxg").touch()
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr("studio.setup.machine.WSL_DRIVER", str(tmp_path))
    assert find_device(str(tmp_path)) == "cuda"


def test_the_first_python_that_fits_is_taken(tmp_path: Path) -> None:
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\necho 3 9\n")
    old.chmod(0o755)
    fits = tmp_path / "python-fits"
    fits.write_text("#!/bin/sh\necho 3 12\n")
    fits.chmod(0o755)
    assert find_python(["/does/not/exist", str(old), str(fits), sys.executable]) == str(fits)
    with pytest.raises(SetupProblem, match=r"3\.11 or 3\.12.*apt-get install python3\.11.*PYTHON="):
        find_python([str(old)])


def test_a_missing_required_library_stops_and_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = debian.Need("libabsent.so.9", "libabsent9", "nothing works", True, debian.has_library)
    monkeypatch.setattr(debian, "NUMA", absent)
    with pytest.raises(
        SetupProblem, match=r"libabsent\.so\.9 is missing: nothing works.*apt-get install libabsent9"
    ):
        command._debian_packages("cpu", dev=False)


def test_a_missing_optional_program_is_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "FFMPEG", debian.Need("no-such-program", "nsp", "less works", False))
    command._debian_packages("cuda", dev=False)
    assert "Note: no-such-program is missing: less works" in capsys.readouterr().err


def test_every_step_is_pending_on_a_fresh_machine_and_none_after_it(place: Place) -> None:
    planned = plan(place, "cpu", dev=True)
    assert [step.name for step in pending(place, planned)] == [
        "venv",
        "torch",
        "packages",
        "dev",
        "studio",
        "check",
    ]
    for step in planned:
        place.mark_done(step.name, step.fingerprint)
    assert pending(place, plan(place, "cpu", dev=True)) == []


def test_a_changed_lock_repeats_what_depends_on_it_only(place: Place) -> None:
    for step in plan(place, "cpu", dev=True):
        place.mark_done(step.name, step.fingerprint)
    lock = place.file("requirements-cpu.lock")
    lock.write_text(lock.read_text() + "scipy==1.0\n")
    assert [step.name for step in pending(place, plan(place, "cpu", dev=True))] == ["packages", "check"]


def test_the_other_device_starts_anew(place: Place) -> None:
    for step in plan(place, "cpu", dev=False):
        place.mark_done(step.name, step.fingerprint)
    names = [step.name for step in pending(place, plan(place, "cuda", dev=False))]
    assert names[:2] == ["venv", "packages"]


def test_a_run_that_broke_resumes_at_the_broken_step(place: Place) -> None:
    done: list[str] = []
    broken = [True]

    def second() -> None:
        if broken.pop():
            raise SetupProblem("no connection")
        done.append("second")

    planned = [
        Step("first", "first", "1", lambda: done.append("first")),
        Step("second", "second", "2", second),
    ]
    with pytest.raises(SetupProblem):
        command._install(place, planned)
    broken.append(False)
    command._install(place, planned)
    command._install(place, planned)
    assert done == ["first", "second"]


def test_an_environment_whose_python_is_gone_counts_as_nothing_done(place: Place) -> None:
    place.mark_done("venv", "cpu")
    place.python.unlink()
    assert place.stamp() == {}


def test_a_stamp_that_a_kill_left_half_written_counts_as_nothing_done(place: Place) -> None:
    place.mark_done("venv", "cpu")
    stamp = next(place.venv.glob("*.json"))
    stamp.write_text(stamp.read_text()[:10])
    assert place.stamp() == {}


def test_torch_is_taken_from_where_pip_already_looks(place: Place) -> None:
    pip.install_cpu_torch(place, "torch==2.13.0+cpu")
    assert len(calls(place)) == 2
    assert "--dry-run" in calls(place)[0] and "--dry-run" not in calls(place)[1]
    assert all(line.endswith("--no-deps torch==2.13.0+cpu") for line in calls(place))


def test_torch_is_taken_from_pytorchs_index_where_pip_has_no_cpu_build(place: Place) -> None:
    script(place, 'case "$*" in *whl/cpu*) exit 0;; esac; exit 1')
    pip.install_cpu_torch(place, "torch==2.13.0+cpu")
    assert calls(place)[-1].endswith(
        "--no-deps --extra-index-url https://download.pytorch.org/whl/cpu torch==2.13.0+cpu"
    )


def test_a_cuda_torch_is_never_taken_instead_of_a_cpu_build(place: Place) -> None:
    script(place, "exit 1")
    with pytest.raises(SetupProblem, match="find-links"):
        pip.install_cpu_torch(place, "torch==2.13.0+cpu")
    assert all("--dry-run" in line for line in calls(place))


def test_torchaudio_loses_its_two_cuda_libraries_and_nothing_else(place: Place) -> None:
    libraries = place.venv / "lib" / "python3.11" / "site-packages" / "torchaudio" / "lib"
    libraries.mkdir(parents=True)
    for name in ("_torchaudio.so", "libtorchaudio.so", "torchaudio_prefixctc.so"):
        (libraries / name).touch()
    pip.install_cpu_lock(place, place.file("requirements-cpu.lock"))
    assert os.listdir(libraries) == ["torchaudio_prefixctc.so"]


def test_a_studio_that_nobody_installed_is_installed_into_the_running_python(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a Space, which installs requirements.txt and starts app.py."""
    monkeypatch.setattr(sys, "prefix", str(place.venv))
    monkeypatch.setattr(registration, "is_registered", lambda: False)
    registration.ensure_registered(place.root)
    assert calls(place)[0].endswith(f"--no-deps --no-build-isolation -e {place.root}")


def test_an_installed_studio_is_left_as_it_is(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(place.venv))
    monkeypatch.setattr(
        registration.importlib.metadata,
        "entry_points",
        lambda group: [SimpleNamespace(value=registration.PLUGINS[group])],
    )
    registration.ensure_registered(place.root)
    assert calls(place) == []


def test_a_studio_installed_before_a_plugin_was_added_is_installed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    known = dict(list(registration.PLUGINS.items())[:1])
    monkeypatch.setattr(
        registration.importlib.metadata,
        "entry_points",
        lambda group: [SimpleNamespace(value=known[group])] if group in known else [],
    )
    assert not registration.is_registered()


def test_what_is_registered_is_what_the_package_names() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert {group: list(plugins.values()) for group, plugins in named.items()} == {
        group: [plugin] for group, plugin in registration.PLUGINS.items()
    }


def test_a_failing_pip_names_the_file_and_the_remedy(place: Place) -> None:
    script(place, "exit 1")
    with pytest.raises(SetupProblem, match=r"could not install requirements-dev\.lock.*same command again"):
        pip.install_lock(place, place.file("requirements-dev.lock"))


def test_the_pinned_torch_is_a_cpu_build() -> None:
    assert steps.locked(ROOT / steps.CPU_LOCK, "torch").endswith("+cpu")
    with pytest.raises(ValueError, match="pins no absent"):
        steps.locked(ROOT / steps.CPU_LOCK, "absent")


def test_the_command_ends_with_1_and_one_sentence_when_the_machine_is_too_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("studio.setup.machine.free_disk_bytes", lambda folder: 1 * GIB)
    assert command.main(["--device", "cpu", "--venv", str(tmp_path / "venv")]) == 1
    assert "Set-up stopped: The cpu set needs" in capsys.readouterr().err
    assert not (tmp_path / "venv").exists()
