"""All settings as one typed table, and the only reader of flags, environment and settings file.

A setting `max_num_seqs` is the flag `--max-num-seqs` (or `--max_num_seqs`), the variable `STUDIO_MAX_NUM_SEQS` and the
key `max_num_seqs` of a TOML file given by `--config`. A flag wins over the environment, the environment over the file.
Unknown names stop start-up and suggest the nearest. Does not read anything after start-up.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from studio.errors import SettingsError
from studio.setup.machine import find_device
from studio.speech import Sampling

PREFIX = "STUDIO_"
ROOT = Path(__file__).resolve().parent.parent
Applies = Literal["restart", "next request", "next step", "at once"]
SPACE_SIGN_IN = {
    "oidc_issuer": "OPENID_PROVIDER_URL", "oidc_client_id": "OAUTH_CLIENT_ID",
    "oidc_client_secret": "OAUTH_CLIENT_SECRET", "oidc_scopes": "OAUTH_SCOPES",
}
"""Settings, and the variables that a Hugging Face Space with `hf_oauth: true` gives them by."""
MODEL_NAME = re.compile(r"[\w./-]{1,64}")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def knob(
    default: object, description: str, *, group: str, unit: str = "", applies: Applies = "restart", on_gpu: int | str | None = None, **bounds: Any
) -> Any:
    """One row of the table: default, effect, group, unit, when it acts, and its bounds (ge, le, multiple_of).

    on_gpu: the default where the models run on CUDA, if it is another one.
    """
    return Field(default, description=description, json_schema_extra={"group": group, "unit": unit, "applies": applies, "on_gpu": on_gpu}, **bounds)


class Settings(BaseModel):
    """Everything that can be chosen at start; frozen, built once, passed to whoever needs it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = knob("127.0.0.1", "Address to listen on; 0.0.0.0 for all, as by default on a Hugging Face Space.", group="server")
    port: int = knob(7860, "Port to listen on.", group="server", ge=0, le=65535)
    root_path: str = knob("", "Path prefix that a proxy strips, such as /tts.", group="server")
    ssl_certfile: str = knob("", "TLS certificate; with ssl_keyfile the page is https, which microphones need off localhost.", group="server")
    ssl_keyfile: str = knob("", "TLS private key.", group="server")
    api_key: str = knob("", "If set, the page asks for this key and /v1 for `Authorization: Bearer` with it; /health and /metrics stay open.", group="server")
    admin_password: str = knob("", "Password of the Admin tab; empty: a token that works once is printed at each start.", group="server")
    oidc_issuer: str = knob("", "OpenID provider by which administrators may sign in as well, such as https://huggingface.co; empty: that of a Space with hf_oauth, else none.", group="server")
    oidc_client_id: str = knob("", "What the provider knows this studio by.", group="server")
    oidc_client_secret: str = knob("", "The secret that goes with it; empty: the provider asks for none.", group="server")
    oidc_scopes: str = knob("openid profile email", "What the provider is asked to tell.", group="server")
    oidc_admins: str = knob("", "Who of its people is an administrator: claim=value, comma separated, such as sub=5f1a or email=ada@example.org or groups=ops; empty: nobody.", group="server")
    allowed_origins: str = knob("", "Other sites' origins that may call /v1 from a browser, comma separated.", group="server")
    page: bool = knob(True, "Serve the page; false: the API alone, which needs no Gradio.", group="server")
    log_level: Literal["debug", "info", "warning", "error"] = knob("info", "Least severe line that is logged.", group="server", applies="at once")

    model_dir: str = knob(str(ROOT / "assets" / "voice"), "Checkpoint folder in CosyVoice2's layout, or its name on a hub such as FunAudioLLM/CosyVoice2-0.5B.", group="model")
    hub: Literal["huggingface", "modelscope"] = knob("huggingface", "Where a checkpoint named in model_dir is fetched from.", group="model")
    hub_endpoint: str = knob("", "Address of the hub or a mirror; empty: HF_ENDPOINT for Hugging Face, else the hub's own.", group="model")
    model_revision: str = knob("", "Branch, tag or commit to fetch; empty: what the main branch is at the first fetch, from then on.", group="model")
    served_model_name: str = knob("", "Name in /v1/models; empty: the checkpoint's own.", group="model")
    models: str = knob("", "Further checkpoints beside model_dir, which a request names as `model`: name=folder or name=owner/repository, comma separated.", group="model")
    load_models: bool = knob(True, "Load them at the start, one after another, as far as they fit; false: only from the Admin tab.", group="model")
    device: Literal["auto", "cpu", "cuda"] = knob("auto", "Where the models run; auto: CUDA if there is one.", group="model")
    gpu_sharing: Literal["slices", "mps", "mps_lm_first"] = knob("slices", "How LM and token2wav share a GPU: in slices of time, or at once through NVIDIA's MPS, which the studio then starts and ends; mps_lm_first: and the LM's small steps go before token2wav's, which gave 9 to 38 % more sound a second on an H200; but under MPS the crash of one may disturb the other.", group="model")

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = knob("auto", "Precision of the speech LM; auto: float32 on CPU, bfloat16 on CUDA, float16 on GPUs before Ampere.", group="lm")
    gpu_memory_utilization: float = knob(0.3, "Share of GPU memory for the speech LM and its KV cache.", group="lm", unit="ratio", ge=0.02, le=0.95)
    kv_cache_gib: float = knob(0.5, "KV cache size on the CPU.", group="lm", unit="GiB", ge=0.05, le=64)
    max_num_seqs: int = knob(16, "Requests that the speech LM runs at once.", group="lm", unit="requests", on_gpu=128, ge=1, le=512)
    max_model_len: int = knob(4096, "Longest prompt plus speech of one segment.", group="lm", unit="tokens", ge=512, le=32768)
    max_num_batched_tokens: int = knob(4096, "Tokens of one LM step, prompts included.", group="lm", unit="tokens", ge=64, le=65536)
    block_size: int = knob(32, "Tokens of one KV cache block; a multiple of 32 on the CPU.", group="lm", unit="tokens", ge=16, le=128)
    enforce_eager: bool = knob(False, "Run the LM without CUDA graphs; always so on the CPU.", group="lm")
    lm_graphs: Literal["decode", "pieces", "all"] = knob("decode", "Which steps of the LM run as CUDA graphs. decode: those of further tokens; pieces: prompts too, in pieces between attentions, so that they hold up other requests for less; all: whole steps of any make, on a Hopper GPU, and decode elsewhere: sooner on an H200, and a step's law is that of a prompt but for rounding; pieces were not run by us.", group="lm", on_gpu="all")
    async_scheduling: bool = knob(False, "Plan the LM's next step while the GPU computes this one: the same tokens, sooner; a CPU has no use for it.", group="lm", on_gpu=True)
    batch_invariant: bool = knob(False, "A seed seldom gives other tokens on a GPU (compute capability 8.0 or more) beside other requests, by vLLM's batch invariance; slower. A CPU needs no such thing.", group="lm")
    enable_prefix_caching: bool = knob(True, "Keep the KV cache of prompts, so that a voice that speaks again is not read again.", group="lm")
    kv_cache_dtype: Literal["auto", "fp8", "fp8_e4m3", "fp8_e5m2"] = knob("auto", "Precision of the KV cache; auto: that of the LM. fp8 holds more tokens for some quality; GPUs only. Not run by us.", group="lm")
    quantization: Literal["auto", "fp8", "int8", "awq", "gptq"] = knob("auto", "Precision of the LM's weights; auto: as the checkpoint has them. fp8 is made at the start; awq and gptq need such a checkpoint; int8 is refused, for vLLM has it for mixtures of experts alone. GPUs only. On an H200 fp8 was slower than bfloat16 (docs/performance.md); awq and gptq were not run by us.", group="lm")
    enable_sleep_mode: bool = knob(False, "Let the LM be put to sleep from the Admin tab, which gives its GPU memory back; GPUs only. Not run by us.", group="lm")
    tensor_parallel_size: int = knob(1, "GPUs that share each layer of the LM; needs as many. Not run by us.", group="lm", unit="GPUs", ge=1, le=8)
    data_parallel_size: int = knob(1, "Copies of the LM, each on GPUs of its own; needs as many. Not run by us.", group="lm", unit="copies", ge=1, le=8)
    lm_engines: int = knob(1, "Processes of the LM on one GPU, each for its share of the requests, with weights and a KV cache of its own: a process plans a step of 128 requests for longer than the GPU computes it.", group="lm", unit="processes", ge=1, le=4)
    speculative: Literal["off", "ngram"] = knob("off", "Draft tokens ahead of the LM; refused, for vLLM drafts past logits processors, and ours draws the speech.", group="lm")
    lm_threads: int = knob(0, "CPU threads of the speech LM; 0: one beside a GPU, else half of the cores.", group="lm", unit="threads", ge=0, le=256)

    token2wav_threads: int = knob(0, "CPU threads of flow and vocoder; 0: two beside a GPU, else what the LM leaves.", group="token2wav", unit="threads", ge=0, le=256)
    max_batch_rows: int = knob(8, "Rows voiced in one token2wav step.", group="token2wav", unit="rows", applies="next step", on_gpu=64, ge=1, le=256)
    batch_wait_s: float = knob(0.0, "How long a step waits for more rows while nobody would run dry: larger batches, later first sound.", group="token2wav", unit="s", applies="next step", ge=0, le=0.2)
    first_block_tokens: int = knob(22, "Tokens that complete the first block, whose other tokens are the voice's; with 3 of look-ahead the first sound waits for them. Fewer make it sooner and shorter, so that players of a slow machine wait for the next. 10, 13, 16, 18 and 22 cost the LM the fewest messages. The sound changes.", group="token2wav", unit="tokens", on_gpu=13, ge=10, le=22)
    first_hop_tokens: int = knob(25, "Tokens of a request's first step, those of the voice in its first block included: more make the first sound later and safer. Hops never change the sound.", group="token2wav", unit="tokens", applies="next step", ge=25, le=200, multiple_of=25)
    hop_growth: float = knob(2.0, "How much longer each next step of a request may be; 1: all as long as the first.", group="token2wav", applies="next step", ge=1, le=4)
    most_hop_tokens: int = knob(100, "The longest step: longer ones cost less a token and let others wait longer.", group="token2wav", unit="tokens", applies="next step", ge=25, le=400, multiple_of=25)
    flow_steps: int = knob(10, "Euler steps of a mel solve; fewer is faster and rougher: the sound changes. What the flow keeps, and its CUDA graphs, are laid out for one number, so another needs a restart.", group="token2wav", unit="steps", ge=1, le=50)
    guidance: float = knob(0.7, "Weight of the voice against the flow's unconditioned guess; other values than the checkpoint's change the sound. A request keeps what it began with; each voice is prepared once more.", group="token2wav", applies="next request", ge=0, le=3)
    flow_cache: Literal["auto", "pages", "grown"] = knob("auto", "What the flow keeps of rows and voices: pages of one pool, with CUDA graphs of fixed shapes, or caches that grow with each row; auto: pages on CUDA for CosyVoice2. The sound is the same up to rounding.", group="token2wav")
    flow_pool_gib: float = knob(0.0, "Memory for what the flow keeps of rows and voices; beyond it rows wait or are computed again, later and with the same sound. 0: on CUDA with pages what gpu_memory_utilization leaves of the GPU, or of each model's part of it where several are named, less a share to work in; else no bound.", group="token2wav", unit="GiB", ge=0, le=1024)
    flow_precision: Literal["auto", "float32", "bfloat16", "float16", "fp8"] = knob("auto", "Precision of what the flow keeps; auto: fp8 in pages on CUDA, else float32. Less takes less memory and rounds the sound.", group="token2wav")
    flow_dtype: Literal["auto", "float32", "bfloat16", "float16"] = knob("auto", "Precision that the flow's estimator computes in, with pages; auto: bfloat16 on CUDA, else float32. Less is faster and rounds the sound.", group="token2wav")
    vocoder_precision: Literal["auto", "float32", "tf32", "float16"] = knob("auto", "Precision of the convolutions of CosyVoice2's vocoder, with pages, but never of its pitch; auto: float16 on CUDA, else float32. tf32 rounds the sound a little less and is slower; float32 is the slowest and rounds it least. A CPU has float32 alone.", group="token2wav")
    upstream_streaming: bool = knob(False, "Stream as upstream's code does, faults included: slow, for comparing by ear only.", group="token2wav")
    voice_cache: int = knob(16, "Voices whose flow state of the prompt is kept ready.", group="token2wav", unit="voices", ge=1, le=1024)
    voice_cache_gib: float = knob(0.0, "Memory of these voices, of which the newest stays at any size; 0: 2 GiB on a CPU, a tenth of a GPU's.", group="token2wav", unit="GiB", ge=0, le=1024)

    temperature: float | None = knob(None, "Sampling temperature where a request names none; unset: the checkpoint's own.", group="sampling", applies="next request", ge=0.05, le=2.0)
    top_p: float | None = knob(None, "Nucleus of the sampling where a request names none; unset: the checkpoint's own.", group="sampling", unit="ratio", applies="next request", ge=0.05, le=1.0)
    top_k: int | None = knob(None, "Most candidates of the sampling where a request names none; unset: the checkpoint's own.", group="sampling", unit="tokens", applies="next request", ge=1, le=200)
    repetition_window: int | None = knob(None, "Spoken tokens that are not drawn again at once where a request names none; 0: off; unset: the checkpoint's own.", group="sampling", unit="tokens", applies="next request", ge=0, le=50)

    asr_model: str = knob("", "Recogniser of words for transcripts and checks: a folder with a faster-whisper model, or a name such as small, which is fetched once from the Hugging Face hub; empty: none.", group="asr")
    asr_threads: int = knob(0, "CPU threads of the recogniser; 0: half of the cores.", group="asr", unit="threads", ge=0, le=256)

    queue_size: int = knob(32, "Requests waiting before new ones are refused with 429.", group="limits", unit="requests", applies="next request", on_gpu=256, ge=0, le=10000)
    max_running: int = knob(8, "Requests voiced at once; further ones wait in line.", group="limits", unit="requests", applies="next request", on_gpu=128, ge=1, le=512)
    max_per_client: int = knob(8, "Requests running or waiting for one client.", group="limits", unit="requests", applies="next request", on_gpu=128, ge=1, le=1000)
    script_lines_at_once: int = knob(4, "Lines of one script voiced at once; its client's other places stay free for listening.", group="limits", unit="lines", ge=1, le=256)
    max_text_chars: int = knob(4096, "Longest text of a request.", group="limits", unit="characters", ge=1, le=100000)
    max_clip_mb: float = knob(20.0, "Largest uploaded clip.", group="limits", unit="MB", ge=0.1, le=500)
    max_voices: int = knob(1000, "Voices that the library keeps.", group="limits", unit="voices", ge=1, le=100000)
    listener_timeout_s: float = knob(120.0, "A listener that reads nothing for so long is dropped.", group="limits", unit="s", ge=1, le=3600)
    start_timeout_s: float = knob(600.0, "A worker that is not ready after so long counts as failed.", group="limits", unit="s", ge=10, le=7200)

    data_dir: str = knob(str(ROOT / "data"), "Folder of the voice library: SQLite and clips.", group="library")
    takes_max_mb: float = knob(2000.0, "Disk for takes; the oldest go first, but none with a star or in a script: one client may keep half of it so. 0: none are kept.", group="library", unit="MB", ge=0, le=1_000_000)
    cache_dir: str = knob("", "Folder for fetched and converted checkpoints; empty: data_dir/cache.", group="library")

    @field_validator("temperature", "top_p", "top_k", "repetition_window", mode="before")
    @classmethod
    def _unset(cls, value: object) -> object:
        """Neither a file nor the environment has a null: there an empty value is one."""
        return None if value == "" else value

    def sampling(self, defaults: Sampling) -> Sampling:
        """The checkpoint's sampling with what is set here in its place."""
        named: dict[str, Any] = {"temperature": self.temperature, "top_p": self.top_p, "top_k": self.top_k, "window": self.repetition_window}
        return replace(defaults, **{k: v for k, v in named.items() if v is not None})

    def for_worker(self) -> dict[str, object]:
        """The settings as plain values for a worker process, which picks what it needs; cache_dir is resolved."""
        return self.model_dump(exclude={"api_key", "admin_password", "oidc_client_secret"}) | {"cache_dir": str(self.folder("cache"))}

    def admins(self) -> tuple[tuple[str, str], ...]:
        """oidc_admins as claims and the value that each must have or hold."""
        entries = (entry.strip().partition("=") for entry in self.oidc_admins.split(",") if entry.strip())
        return tuple((claim, value) for claim, _, value in entries)

    def found_device(self) -> str:
        """"cpu" or "cuda": where the models run."""
        return find_device() if self.device == "auto" else self.device

    def further_models(self) -> dict[str, str]:
        """models by name: the folder of each, or its name on the hub."""
        entries = (entry.strip().partition("=") for entry in self.models.split(",") if entry.strip())
        return {name.strip(): place.strip() for name, _, place in entries}

    def folder(self, name: str) -> Path:
        """A folder of ours below data_dir, made when missing; name "cache" honours cache_dir."""
        path = Path(self.cache_dir) if name == "cache" and self.cache_dir else Path(self.data_dir) / name
        path.mkdir(parents=True, exist_ok=True)
        return path


def table() -> dict[str, FieldInfo]:
    """The settings by name, in the order of the class; help, README and admin are rendered from it."""
    return dict(Settings.model_fields)


def extra(info: FieldInfo, key: str) -> str:
    """group, unit or applies of a row of the table."""
    found = info.json_schema_extra
    return str(found[key]) if isinstance(found, dict) else ""


def gpu_default(info: FieldInfo) -> int | str | None:
    """A row's default on CUDA; None where it is the same as elsewhere."""
    found = info.json_schema_extra
    value = found.get("on_gpu") if isinstance(found, dict) else None
    return value if isinstance(value, int | str) else None


def gpu_defaults() -> dict[str, object]:
    """The defaults on CUDA that are others than elsewhere, by name."""
    return {name: value for name, info in table().items() if (value := gpu_default(info)) is not None}


def load(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from flags, environment and file; raises SettingsError before anything starts."""
    environ = os.environ if environ is None else environ
    flags = _read_flags(argv)
    config = flags.pop("config", None) or environ.get(PREFIX + "CONFIG")
    # A Space shows what listens on all addresses; everywhere else only this machine is let in by default.
    merged: dict[str, object] = {"host": "0.0.0.0"} if environ.get("SPACE_ID") else {}
    if config:
        merged.update(_known(_read_file(Path(str(config))), "", str))
    names = {k: v for k, v in environ.items() if k.startswith(PREFIX) and k != PREFIX + "CONFIG"}
    merged.update(_known(names, PREFIX, _of_variable))
    merged.update(_known(flags, "--", str))
    if environ.get("HF_ENDPOINT") and merged.get("hub", "huggingface") == "huggingface":
        merged.setdefault("hub_endpoint", environ["HF_ENDPOINT"])
    if environ.get("SPACE_ID") and "oidc_issuer" not in merged:
        merged.update({name: environ[theirs] for name, theirs in SPACE_SIGN_IN.items() if theirs in environ})
    if (find_device() if merged.get("device", "auto") == "auto" else merged["device"]) == "cuda":
        merged = gpu_defaults() | merged
    try:
        return _checked(Settings.model_validate(merged))
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        raise SettingsError("settings.bad", name=name, value=merged.get(name), reason=first["msg"]) from None


def named_in(text: str) -> tuple[dict[str, object], list[SettingsError]]:
    """What a settings file holds, or lines as the environment has them: values as written, by setting; and the names of none.

    Raises: ValueError for a text that is neither.
    """
    prefix = PREFIX if re.search(f"^{PREFIX}", text, re.MULTILINE) else ""
    found: dict[str, object] = {}
    unknown: list[SettingsError] = []
    for written, value in (_variables(text) if prefix else tomllib.loads(text)).items():
        try:
            found.update(_known({written: value}, prefix, _of_variable))
        except SettingsError as error:
            unknown.append(error)
    return found, unknown


def _variables(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise ValueError(f"no = in line {number}")
        found[name.strip()] = value.strip()
    return found


def _of_variable(written: str) -> str:
    return written[len(PREFIX):].lower() if written.startswith(PREFIX) else written


def _checked(settings: Settings) -> Settings:
    """The settings, if those of models and of signing in go together; raises SettingsError otherwise."""
    names = [entry.partition("=")[0].strip() for entry in settings.models.split(",") if entry.strip()]
    if wrong := [name for name, place in settings.further_models().items() if not (MODEL_NAME.fullmatch(name) and place)]:
        raise SettingsError("settings.models", value=wrong[0])
    if twice := [name for name in names if [settings.served_model_name, *names].count(name) > 1]:
        raise SettingsError("settings.models_twice", value=twice[0])
    if settings.oidc_issuer and not is_safe_address(settings.oidc_issuer):
        raise SettingsError("settings.oidc_issuer", value=settings.oidc_issuer)
    if settings.oidc_issuer and not settings.oidc_client_id:
        raise SettingsError("settings.oidc_client")
    if wrong := [claim or value for claim, value in settings.admins() if not (claim and value)]:
        raise SettingsError("settings.oidc_admins", value=wrong[0])
    return settings


def is_safe_address(address: object) -> bool:
    """Whether this is an https address, or one of this machine: nobody in between reads what is said there."""
    try:
        parts = urlsplit(address if isinstance(address, str) else "")
        known, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(known) and (parts.scheme == "https" or (parts.scheme == "http" and known in LOOPBACK))


def _known(given: Mapping[str, object], prefix: str, to_name: Any) -> dict[str, object]:
    found: dict[str, object] = {}
    for written, value in given.items():
        name = to_name(written)
        if name not in Settings.model_fields:
            shown = prefix + written if prefix == "--" else written
            near = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.5)
            if not near:
                raise SettingsError("settings.unknown_none", name=shown)
            raise SettingsError("settings.unknown", name=shown, nearest=_written(near[0], prefix))
        found[name] = value
    return found


def _written(name: str, prefix: str) -> str:
    if prefix == "--":
        return "--" + name.replace("_", "-")
    return prefix + name.upper() if prefix else name


def _read_file(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError("settings.file", file=path, reason=error) from None


def _read_flags(argv: Sequence[str]) -> dict[str, object]:
    parser = argument_parser()
    if any(a in ("-h", "--help") for a in argv):
        parser.parse_args(list(argv))
    found: dict[str, object] = {}
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            raise SettingsError("settings.unknown_none", name=word)
        name, _, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if "=" not in word:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        found[name] = value
    return found


def argument_parser() -> argparse.ArgumentParser:
    """The help of `python app.py --help`, one argument group for each group of the table."""
    parser = argparse.ArgumentParser(prog="app.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", help="TOML file with settings.")
    groups: dict[str, Any] = {}
    for name, info in table().items():
        group = extra(info, "group")
        if group not in groups:
            groups[group] = parser.add_argument_group(group)
        choices = get_args(info.annotation) if get_origin(info.annotation) is Literal else None
        unit = f" [{extra(info, 'unit')}]" if extra(info, "unit") else ""
        on_gpu = "" if (value := gpu_default(info)) is None else f"; {value} on a GPU"
        text = f"{info.description}{unit} (default: {'unset' if info.default is None else info.default}{on_gpu})".replace("%", "%%")
        groups[group].add_argument("--" + name.replace("_", "-"), help=text, choices=choices, metavar=None if choices else "X")
    return parser


def exit_on_error(argv: Sequence[str]) -> Settings:
    """load(), with a plain line on stderr and exit status 2 in place of a traceback."""
    try:
        return load(argv)
    except SettingsError as error:
        print(f"app.py: {error}", file=sys.stderr)
        raise SystemExit(2) from None
