"""The web process stays light: the page is up within seconds because nothing heavy is imported in it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"torch", "torchaudio", "vllm", "transformers", "onnxruntime"}


def test_importing_the_application_loads_no_torch() -> None:
    """Catches what a library of ours brings along; the unit test of imports sees only what we name."""
    code = f"import sys, app; print(*sorted(set(sys.modules) & {HEAVY!r}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stderr


def test_importing_the_application_skips_gradios_server_for_tools_and_its_stubs() -> None:
    """Both together are more than half of Gradio's import; without them the page is up seconds earlier."""
    code = """
import ast, sys
segment = ast.get_source_segment
def no_segment(*args, **kwargs):
    raise AssertionError("Gradio reads its own sources, to write stubs of them")
ast.get_source_segment = no_segment
import studio.ui
ast.get_source_segment = segment
import gradio, inspect
print("mcp" in sys.modules, inspect.getfile(gradio.Textbox).endswith("textbox.py"))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "False True"), run.stderr


def test_the_api_alone_is_served_without_gradio(tmp_path: Path) -> None:
    code = """
import sys
sys.modules["gradio"] = None  # as where it is not installed
import app
from studio.settings import load
built = app.build(load(["--page", "false", "--data-dir", sys.argv[1]], {}))
print(sorted({"/", "/v1/audio/speech"} & {getattr(route, "path", "") for route in built.routes}))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "['/v1/audio/speech']"), run.stderr


def test_after_the_start_no_collection_walks_what_it_loaded(tmp_path: Path) -> None:
    code = """
import asyncio, gc, sys
import app
from studio.engine.engine import Engine
from studio.settings import load
observers = []
Engine.on_warm = lambda engine, observer: observers.append(observer)
built = app.build(load(["--page", "false", "--data-dir", sys.argv[1]], {}))
assert gc.get_freeze_count() == 0
asyncio.run(observers[0]())
print(gc.get_freeze_count() > 10 * len(gc.get_objects()))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "True"), run.stderr


def test_first_speech_over_http_loads_nothing(tmp_path: Path) -> None:
    """What is imported or read then is heard as a later first sound, once after each start."""
    code = """
import asyncio, json, sys
from urllib.request import Request, urlopen
from app import settle
from studio.backends.fake import ScriptedSpeechLM, SineToken2Wav, WordFrontend
from studio.bench.host import VOICE, arguments, web_on
from studio.bench.serving import serving
from studio.engine.engine import Engine

def ask(url, body=None):
    data = body and json.dumps(body).encode()
    return urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=60).read()

async def main(data):
    found, counting = [], False
    def note(event, args):
        if counting and event in ("import", "open") and not str(args[0]).startswith(data):
            found.append(args[0])
    sys.addaudithook(note)
    engine = Engine(ScriptedSpeechLM(), SineToken2Wav(), WordFrontend())
    async with serving(web_on(engine, data, arguments(["--takes-max-mb", "0"]))) as url:
        await settle()
        await asyncio.to_thread(ask, url + "/v1/models")  # so that the client has loaded what it needs
        counting = True
        body = {"input": "Hello there.", "voice": VOICE, "response_format": "pcm"}
        sound = await asyncio.to_thread(ask, url + "/v1/audio/speech", body)
        counting = False
        print(len(sound) > 0, found)

asyncio.run(main(sys.argv[1]))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert (run.returncode, run.stdout.strip()) == (0, "True []"), run.stdout + run.stderr


def test_a_folder_that_is_no_checkpoint_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    command = [sys.executable, "app.py", "--model-dir", str(tmp_path), "--data-dir", str(tmp_path / "data")]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert run.returncode == 1
    assert "app.py: cosyvoice2.yaml is missing in" in run.stderr and "Traceback" not in run.stderr
