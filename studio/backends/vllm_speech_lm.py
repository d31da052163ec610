"""The speech LM on vLLM: prompts to speech tokens, with the parameters of each request. Reads no settings.

It knows nothing of sound. What depends on vLLM's version is in vllm_compat.py; the program around it is vllm_lm.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from studio.backends import vllm_compat
from studio.backends.serve import engine_dead
from studio.backends.vllm_compat import EngineCounters, EngineOptions
from studio.errors import RequestAborted, SpeechLMError, StudioError
from studio.models.speech_lm.layout import SpeechLmLayout, TokenBounds
from studio.protocols import FILL, LmPrompt, LmStats, LmTurn, TokenDelta
from studio.speech import Float32, Sampling

if TYPE_CHECKING:
    from vllm import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

LOGITS_PROCESSOR = "studio.models.speech_lm.ras_processor:RepetitionAwareSampling"


class VllmSpeechLM:
    """SpeechLM over one AsyncLLM, of one engine or several. Owner: the event loop it was started in."""

    def __init__(
        self,
        engine: AsyncLLM,
        layout: SpeechLmLayout,
        counters: EngineCounters,
        max_model_len: int,
        bounds: TokenBounds,
        engines: int = 1,
    ) -> None:
        """engines: of which each runs its share of the requests."""
        self._engine = engine
        self._running = [0] * engines
        self._counters = counters
        self._max_model_len = max_model_len
        self._bounds = bounds
        self._watched: list[int] = []
        self.layout = layout

    @classmethod
    def start(cls, folder: Path, options: EngineOptions, bounds: TokenBounds) -> VllmSpeechLM:
        """Load a converted folder, inside an event loop, which is blocked until the weights are loaded."""
        from studio.models.speech_lm.convert import read_layout

        counters = EngineCounters()
        layout = read_layout(folder)
        engine = vllm_compat.start_engine(folder, options, LOGITS_PROCESSOR, counters)
        return cls(engine, layout, counters, options.max_model_len, bounds, options.lm_engines)

    async def generate(
        self, prompt: LmPrompt | LmTurn, sampling: Sampling, request_id: str
    ) -> AsyncIterator[TokenDelta]:
        """See protocols.SpeechLM. Raises RequestAborted in the iterator of a request that abort() ended."""
        ids, params = (
            self._turn(prompt, sampling) if isinstance(prompt, LmTurn) else self._request(prompt, sampling)
        )
        number = self._running.index(min(self._running))
        outputs = self._engine.generate(
            {"prompt_token_ids": ids}, params, request_id, data_parallel_rank=number if len(self._running) > 1 else None
        )
        self._running[number] += 1
        try:
            async for output in outputs:
                completion = output.outputs[0]
                if completion.finish_reason not in (None, "stop", "length"):
                    raise RequestAborted("speech.aborted")
                # The end id that stopped it comes along as a token; it is no speech.
                tokens = tuple(int(t) for t in completion.token_ids if t < self.layout.speech_codes)
                yield TokenDelta(tokens, self._reason(prompt, completion.finish_reason, params.max_tokens))
        except StudioError:
            raise
        except Exception as error:
            raise wrap_error(error) from error
        finally:
            self._running[number] -= 1
            await outputs.aclose()

    def _reason(self, prompt: LmPrompt | LmTurn, given: str | None, most: int | None) -> str | None:
        """vLLM's finish reason. The greatest number may be an end like any other, but neither of a turn among others
        nor where max_model_len has cut it down to most."""
        if isinstance(prompt, LmTurn):
            may_end = prompt.whole and most == prompt.most
        else:
            may_end = most == self._bounds.of(len(prompt.text_ids))[1]
        return "stop" if given == "length" and may_end and self._bounds.most_is_end else given

    async def next_log_probs(self, prompt: LmPrompt, spoken: Sequence[int], request_id: str) -> Float32:
        """The model's own log-probabilities after `spoken`, float32 [S + 3], nothing masked; for parity."""
        from vllm import SamplingParams

        width = self.layout.head_width
        ids = self.layout.prompt_ids(
            prompt.prompt_text_ids, prompt.text_ids, [*prompt.speech_tokens, *spoken]
        )
        params = SamplingParams(max_tokens=1, logprobs=width, detokenize=False)
        async for output in self._engine.generate({"prompt_token_ids": ids}, params, request_id):
            by_id = output.outputs[0].logprobs[0]
        return np.array([by_id[i].logprob for i in range(width)], np.float32)

    async def greedy_log_probs(self, prompt: LmPrompt, count: int, request_id: str) -> tuple[list[int], Float32]:
        """The likeliest tokens, each after those before it, and the log-probabilities of the last, float32 [S + 3].

        The last ones are of a step of one token; `next_log_probs` gives them as a prompt's step has them.
        """
        from vllm import SamplingParams

        width = self.layout.head_width
        ids = self.layout.prompt_ids(prompt.prompt_text_ids, prompt.text_ids, prompt.speech_tokens)
        params = SamplingParams(temperature=0.0, max_tokens=count, logprobs=width, detokenize=False, ignore_eos=True)
        async for output in self._engine.generate({"prompt_token_ids": ids}, params, request_id):
            said = output.outputs[0]
        last = said.logprobs[-1]
        return list(said.token_ids), np.array([last[i].logprob for i in range(width)], np.float32)

    async def abort(self, request_id: str) -> None:
        """See protocols.SpeechLM."""
        await self._engine.abort(request_id)

    async def stats(self) -> LmStats:
        """What the engine said of itself after its last step."""
        return self._counters.stats

    async def metrics(self) -> str:
        return vllm_compat.metrics_text()

    async def reset_prefix_cache(self) -> bool:
        return bool(await self._engine.reset_prefix_cache())

    async def sleep(self) -> None:
        await self._engine.sleep(level=1)  # weights wait in the machine's memory; the KV cache is thrown away

    async def wake(self) -> None:
        await self._engine.wake_up()

    async def close(self) -> None:
        """End the engine's processes, which nobody is told of as a loss."""
        for sentinel in self._watched:  # the engine is meant to end now
            asyncio.get_running_loop().remove_reader(sentinel)
        self._watched.clear()
        self._engine.shutdown()

    async def warm_up(
        self, batch_sizes: list[int], on_batch: Callable[[int], None] = lambda done: None
    ) -> None:
        """Run a few tokens at each batch size, so that no listener waits for kernels to be built."""
        prompt = LmPrompt((), (0, 0), np.zeros(0, np.int32))
        for done, size in enumerate(batch_sizes):
            # Prompts differ in length, so that both a prompt's step and mixed steps are run.
            await asyncio.gather(*(self._drain(prompt, f"warm-up {size}.{i}") for i in range(size)))
            on_batch(done + 1)

    def watch(self, on_death: Callable[[], None]) -> None:
        """Call on_death when a process of the engine ends, also while no request runs."""
        loop = asyncio.get_running_loop()
        for process in vllm_compat.watched_processes(self._engine):
            loop.add_reader(process.sentinel, on_death)
            self._watched.append(process.sentinel)

    @property
    def engine_pids(self) -> list[int]:
        """The process of each engine."""
        return [p.pid for p in vllm_compat.engine_processes(self._engine) if p.pid is not None]

    async def _drain(self, prompt: LmPrompt, request_id: str) -> None:
        async for _ in self.generate(prompt, Sampling(), request_id):
            pass

    def _turn(self, turn: LmTurn, sampling: Sampling) -> tuple[list[int], SamplingParams]:
        try:
            ids = self.layout.turn_ids(turn.parts, turn.whole)
            most = min(turn.most, self._max_model_len - len(ids))
            if most < 1:
                raise ValueError(f"a text that fills {len(ids)} of {self._max_model_len}")
            return ids, turn_params(turn, sampling, self.layout, most)
        except ValueError as error:
            raise SpeechLMError("speech.lm_failed", reason=str(error)) from error

    def _request(self, prompt: LmPrompt, sampling: Sampling) -> tuple[list[int], SamplingParams]:
        try:
            ids = self.layout.prompt_ids(prompt.prompt_text_ids, prompt.text_ids, prompt.speech_tokens)
            least, most = self._bounds.within(len(prompt.text_ids), self._max_model_len - len(ids))
            return ids, sampling_params(sampling, self.layout, least, most)
        except ValueError as error:
            raise SpeechLMError("speech.lm_failed", reason=str(error)) from error


def sampling_params(
    sampling: Sampling, layout: SpeechLmLayout, least: int, most: int, drawn: Sequence[int] = (), only_end: int = -1
) -> SamplingParams:
    """vLLM's parameters: law and draw are in the logits processor, so its own sampling is switched off.

    drawn: tokens of the same speech from before this prompt's end, for the repetition rule. only_end: the one end that
    may be drawn, or -1 for all of them.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    from studio.models.speech_lm.ras_batch import RasParams

    ras = RasParams(
        sampling.temperature,
        sampling.top_p,
        sampling.top_k,
        sampling.window,
        drawn=tuple(drawn),
        seed=sampling.seed,
        # In place of vLLM's min_tokens and logit_bias, which the host goes through row by row. (Upstream masks only the
        # first end, and may end early.)
        first_end=layout.speech_codes,
        least=least,
        only_end=only_end,
    )
    return SamplingParams(
        temperature=0.0,
        max_tokens=most,
        stop_token_ids=list(layout.end_ids) if only_end < 0 else [only_end],
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        extra_args=ras.extra_args(),
    )


def turn_params(turn: LmTurn, sampling: Sampling, layout: SpeechLmLayout, most: int) -> SamplingParams:
    """Parameters of a turn: until the text is whole the fill alone may end it, and all other ends are masked."""
    recent = turn.drawn[-sampling.window :] if sampling.window else ()
    drawn = [layout.fill_id if token == FILL else token for token in recent]
    return sampling_params(sampling, layout, 0, most, drawn, -1 if turn.whole else layout.fill_id)


def wrap_error(error: Exception) -> StudioError:
    """The studio's error for whatever vLLM raised."""
    if vllm_compat.is_engine_dead(error):
        return engine_dead()
    return SpeechLMError("speech.lm_failed", reason=f"{type(error).__name__}: {error}")
