"""Repetition-aware sampling: the closed-form law against the golden cases and against its own two draws."""

from __future__ import annotations

import json
import os
import random
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from studio.models.speech_lm.draw import begun, drawn, numbers
from studio.models.speech_lm.ras import NO_TOKEN, RasRows, _leading_ids, _nucleus, final_log_probs
from studio.models.speech_lm.ras_batch import MAX_WINDOW, RasBatch, RasParams
from studio.models.speech_lm.ras_draw import IN_TORCH, RING, Draw

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOLDEN = json.loads((FIXTURES / "06_ras.json").read_text())
CASES = {case["name"]: case for case in GOLDEN["cases"]}
WINDOW = 10


ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # test code: the studio's settings do not know it


HAS_KERNEL = find_spec("triton") is not None and (ON_GPU or INTERPRETED)
WAYS = ["in torch", "in one kernel"] if HAS_KERNEL else ["in torch"]


def way(name: str) -> Draw:
    if name == "in torch":
        return IN_TORCH
    from studio.models.speech_lm.ras_triton import step_in_one_kernel

    return Draw(step_in_one_kernel, DEVICE)


def official_rows(count: int) -> RasRows:
    ones = torch.ones(count, 1)
    return RasRows(ones, ones * 0.8, ones.long() * 25, ones.long(), 25)


def window_of(spoken: list[int]) -> torch.Tensor:
    return torch.tensor([(spoken[-WINDOW:] + [NO_TOKEN] * WINDOW)[:WINDOW]])


def nucleus_by_enumeration(p, top_p, top_k):
    candidates, mass = [], 0.0
    for i in sorted(range(len(p)), key=lambda i: (-p[i].item(), i)):
        if mass >= top_p or len(candidates) >= top_k:
            break
        candidates.append(i)
        mass += p[i].item()
    return candidates


def law_by_enumeration(logp, spoken, top_p=0.8, top_k=25, window=WINDOW, needed=1, candidates=None):
    """The sampler's two draws written out in float64, one candidate after the other."""
    p = torch.tensor(logp, dtype=torch.float64).softmax(0)
    candidates = candidates or nucleus_by_enumeration(p, top_p, top_k)
    law = torch.zeros_like(p)
    recent = spoken[-window:] if window else []
    for i in candidates:
        q = p[i] / p[candidates].sum()
        if recent.count(i) >= needed:
            rest = p.clone()
            rest[i] = 0
            law += q * rest / rest.sum()
        else:
            law[i] += q
    return law


@pytest.mark.parametrize("name", CASES)
def test_candidates_are_the_golden_ones_in_their_order(name):
    case = CASES[name]
    scores = torch.tensor([case["logp"]])
    ids = _leading_ids(scores, 25)
    p = scores.softmax(1).gather(1, ids)
    inside = _nucleus(p, official_rows(1)) > 0
    assert ids[inside].tolist() == case["expect"]["candidate_ids"]
    worst = (p[inside] - torch.tensor(case["expect"]["candidate_probs"])).abs().max()
    assert worst <= GOLDEN["tolerance_max_abs"]["candidate_probs"]


@pytest.mark.parametrize("name", CASES)
def test_law_takes_the_golden_branch(name):
    case, expect = CASES[name], CASES[name]["expect"]
    law = final_log_probs(torch.tensor([case["logp"]]), window_of(case["decoded"]), official_rows(1)).exp()[0]
    first = expect["first_id"]
    if expect["branch"] == "keep":
        share = torch.tensor(expect["candidate_probs"])
        assert law[first] >= share[case["pick1"]] / share.sum() - 1e-6
        return
    # With the first draw fixed to `first`, what is left of the law must be the golden second draw.
    alone = dict(zip(expect["candidate_ids"], expect["candidate_probs"], strict=True))[first]
    q = alone / sum(expect["candidate_probs"])
    without = law_by_enumeration(case["logp"], [t for t in case["decoded"][-WINDOW:] if t != first])
    without[first] = 0
    second = (law.double() - without) / q
    assert abs(law[first].item() - law_by_enumeration(case["logp"], case["decoded"])[first].item()) < 1e-6
    assert int((second.abs() > 1e-9).sum()) >= expect["second_draw_support"] - 1
    if len(expect["candidate_ids"]) == 1:
        assert law[first] == expect["second_draw_prob_of_first_id"] == 0
        assert int((law > 0).sum()) == expect["second_draw_support"]
        assert int(law.argmax()) == expect["final_id"]


@pytest.mark.parametrize("name", CASES)
def test_law_equals_the_two_draws_written_out(name):
    case = CASES[name]
    law = final_log_probs(torch.tensor([case["logp"]]), window_of(case["decoded"]), official_rows(1)).exp()[0]
    # The golden candidates: in one case float64 sums fall on the other side of top_p.
    expected = law_by_enumeration(case["logp"], case["decoded"], candidates=case["expect"]["candidate_ids"])
    assert torch.allclose(law.double(), expected, atol=3e-7, rtol=0)


def two_draws(logp: torch.Tensor, spoken: list[int], draws: int, generator: torch.Generator) -> np.ndarray:
    """Counts of the sampler as the fixtures' README tells it, drawing for real."""
    p = logp.softmax(0)
    ids = torch.argsort(logp, descending=True, stable=True)
    before = torch.cat([torch.zeros(1), p[ids].cumsum(0)[:-1]])
    ids = ids[(before < 0.8) & (torch.arange(len(ids)) < 25)]
    first = ids[torch.multinomial(p[ids], draws, replacement=True, generator=generator)]
    counts = np.zeros(len(p), np.int64)
    for token, times in zip(*np.unique(first.numpy(), return_counts=True), strict=True):
        if token not in spoken[-WINDOW:]:
            counts[token] += times
            continue
        rest = p.clone()
        rest[token] = 0
        second = torch.multinomial(rest, int(times), replacement=True, generator=generator)
        counts += np.bincount(second.numpy(), minlength=len(p))
    return counts


@pytest.mark.parametrize(
    "name", ["random246", "random246_repeat", "flat_repeat", "peaked_repeat_in_window", "half"]
)
def test_a_hundred_thousand_draws_agree_with_the_law(name):
    """Chi-square at the 99.99 % quantile: one false alarm in 2,000 runs of all, were the seeds not fixed."""
    if name == "half":  # several repeated candidates at once, the likeliest among them
        generator = torch.Generator().manual_seed(3)
        case = {"logp": (torch.randn(246, generator=generator) * 2.5).tolist(), "decoded": []}
        case["decoded"] = torch.tensor(case["logp"]).topk(14).indices[::2].tolist()
    else:
        case = CASES[name]
    logp = torch.tensor(case["logp"])
    law = final_log_probs(logp[None], window_of(case["decoded"]), official_rows(1)).exp()[0].double().numpy()
    draws = 100_000
    counts = two_draws(logp, case["decoded"], draws, torch.Generator().manual_seed(11))
    assert counts[law == 0].sum() == 0
    # Cells with few expected draws are joined, as the test asks for at least five in each.
    big = law * draws >= 5
    observed = np.append(counts[big], counts[~big].sum())
    expected = np.append(law[big], law[~big].sum()) * draws
    observed, expected = observed[expected > 0], expected[expected > 0]
    chi2 = ((observed - expected) ** 2 / expected).sum()
    freedom = max(1, len(expected) - 1)
    # Wilson and Hilferty's approximation of the quantile at z = 3.72
    limit = freedom * (1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert chi2 < limit


def test_a_near_certain_repeated_token_gives_the_softmax_of_the_others():
    """1 - p(x) is 0 in float32 here; the second draw must still be a distribution over the others."""
    scores = torch.full((1, 50), -60.0)
    scores[0, 7], scores[0, 3], scores[0, 4] = 60.0, 1.0, 1.0
    law = final_log_probs(scores, window_of([7]), official_rows(1)).exp()[0]
    assert law[7] == 0
    assert torch.allclose(law[[3, 4]], torch.tensor([0.5, 0.5]), atol=1e-6)


def test_a_row_with_one_unmasked_token_keeps_it_although_it_repeats():
    scores = torch.full((1, 50), float("-inf"))
    scores[0, 7] = 0.5
    law = final_log_probs(scores, window_of([7]), official_rows(1))
    assert law.exp()[0, 7] == pytest.approx(1)
    assert not law.isnan().any()


def test_masked_tokens_stay_masked_in_both_draws():
    scores = torch.randn(1, 100, generator=torch.Generator().manual_seed(0))
    scores[0, 90:] = float("-inf")
    spoken = scores[0].topk(3).indices.tolist()
    law = final_log_probs(scores, window_of(spoken), official_rows(1)).exp()
    assert (law[0, 90:] == 0).all()
    assert law.sum() == pytest.approx(1, abs=1e-6)


def test_equal_scores_are_taken_in_the_order_of_their_ids_on_any_size():
    scores = torch.zeros(2, 6564)
    scores[1, 5000:] = 1.0
    ids = _leading_ids(scores, 25)
    assert ids[0].tolist() == list(range(25))
    assert ids[1].tolist() == list(range(5000, 5025))


def test_rows_of_a_batch_do_not_touch_each_other():
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(6, 300, generator=generator) * 3
    window = torch.randint(0, 300, (6, WINDOW), generator=generator)
    rows = RasRows(
        torch.tensor([[0.5], [1.0], [1.5], [1.0], [1.0], [0.7]]),
        torch.tensor([[0.8], [0.5], [1.0], [0.95], [0.1], [0.8]]),
        torch.tensor([[25], [3], [50], [1], [25], [10]]),
        torch.tensor([[1], [1], [2], [1], [1], [3]]),
        50,
    )
    together = final_log_probs(scores, window, rows).exp()
    for i in range(6):
        expected = law_by_enumeration(
            (scores[i] / rows.temperature[i]).tolist(), window[i].tolist(), rows.top_p[i].item(),
            rows.top_k[i].item(), needed=rows.repeats_needed[i].item(),
        )  # fmt: skip
        assert torch.allclose(together[i].double(), expected, atol=1e-6, rtol=0)


# The batch: requests come, go and move, as vLLM tells it.


class Change(SimpleNamespace):
    def __init__(self, added=(), removed=(), moved=()):
        super().__init__(
            added=added, removed=removed, moved=[(a, b, SimpleNamespace(name=d)) for a, b, d in moved]
        )


def asking(**params):
    return SimpleNamespace(extra_args=RasParams(**params).extra_args())


PLAIN = SimpleNamespace(extra_args=None)


def expected_token(scores, spoken, **params):
    """What a row draws by the law, from all that counts as spoken."""
    p, scores = RasParams(**params), scores.clone()
    for end in range(p.first_end, len(scores)):
        if len(spoken) < p.least or p.only_end not in (-1, end):
            scores[end] = float("-inf")
    before = [*p.drawn, *spoken]
    window = before[-p.window :] if p.window else []
    columns = (p.temperature, p.top_p, p.top_k, p.repeats_needed)
    rows = RasRows(*(torch.tensor([[float(value)]]) for value in columns), max(2, p.top_k))
    law = final_log_probs(scores[None], torch.tensor([window or [NO_TOKEN]]), rows)
    number = numbers(begun(np.array([p.seed], np.uint64)), np.array([len(before)]))
    return drawn(law, torch.from_numpy(number)[:, None]).item()


def step_of(batch, scores, spoken, params):
    """Checks that each row draws what it should or passes untouched, and returns the tokens."""
    left = batch.apply(scores.to(DEVICE, copy=True)).cpu()
    for i, (said, wanted) in enumerate(zip(spoken, params, strict=True)):
        if wanted is None:
            assert torch.equal(left[i], scores[i])
        else:
            assert (left[i] > float("-inf")).sum() == 1 and left[i].max() == 0
            assert left[i].argmax() == expected_token(scores[i], said, **wanted), i
    return left.argmax(1).tolist()


@pytest.fixture
def scores():
    return torch.randn(4, 80, generator=torch.Generator().manual_seed(9)) * 2


@pytest.fixture(params=WAYS)
def batch(request):
    """A batch of 8 rows, drawn in each way that runs here."""
    return RasBatch(8, draw=way(request.param))


def leading(scores, row, rank):
    return scores[row].topk(rank + 1).indices[rank].item()


def test_windows_follow_what_is_drawn_while_the_lists_hold_placeholders(batch, scores):
    """vLLM's asynchronous scheduling: the list of a row grows by -1 before the host knows the token."""
    params = [{}, {"window": 40, "seed": 3}]
    past = [leading(scores, 0, n % 12) for n in range(RING - 12)]  # so that places are used again
    spoken, lists = [past[:], []], [past[:], []]
    batch.change(Change(added=[(i, asking(**params[i]), [], lists[i]) for i in range(2)]))
    for step in range(24):
        tokens = step_of(batch, scores[:2], spoken, params)
        for row in range(2):
            if row == 0 or step % 3:  # row 1 is thrown away at times, as while a prompt is still read
                spoken[row].append(tokens[row])
                lists[row].append(-1)
    assert len(set(spoken[0][len(past) :])) > 5


def test_a_draw_that_is_thrown_away_hides_nothing_of_the_longest_window(batch, scores):
    past = [n % 80 for n in range(300)]
    params = {"window": MAX_WINDOW, "tau": 0.01, "top_k": 60, "top_p": 1.0}
    batch.change(Change(added=[(0, asking(**params), [], past)]))
    first = step_of(batch, scores[:1], [past], [params])
    assert all(step_of(batch, scores[:1], [past], [params]) == first for _ in range(3))


def test_a_resumed_request_brings_its_whole_past(batch, scores):
    past = [leading(scores, 0, i % 12) for i in range(31)]
    batch.change(Change(added=[(0, asking(window=7), [], past)]))
    step_of(batch, scores[:1], [past], [{"window": 7}])


@pytest.mark.parametrize("kept", [0, 3, 40])
def test_a_list_that_was_cut_or_grew_by_more_than_its_draws_is_read_anew(batch, scores, kept):
    """As after keys and values that could not be loaded."""
    spoken = [leading(scores, 0, i % 12) for i in range(41)]
    batch.change(Change(added=[(0, asking(), [], spoken)]))
    spoken.append(step_of(batch, scores[:1], [spoken], [{}])[0])
    del spoken[kept:]
    step_of(batch, scores[:1], [spoken], [{}])
    spoken += [leading(scores, 0, i) for i in range(5)]
    step_of(batch, scores[:1], [spoken], [{}])


def test_tokens_drawn_before_the_request_count_as_spoken(batch, scores):
    """A turn of streamed text is a request of its own, but the repetition rule goes on."""
    before = tuple(leading(scores, 0, i) for i in range(4))
    for count in (1, 4):
        spoken: list[int] = []
        params = {"window": 5, "drawn": before[:count]}
        batch.change(Change(added=[(0, asking(**params), [], spoken)]))
        for _ in range(9):
            spoken += step_of(batch, scores[:1], [spoken], [params])


def test_requests_that_leave_and_move_take_their_windows_along(batch, scores):
    spoken = [[leading(scores, i, r) for r in range(i + 1)] for i in range(4)] + [[]]
    params = [{}, {"temperature": 0.6}, None, {"top_k": 2, "window": 3}, {"top_p": 0.3}]
    requests = [asking(**p) if p is not None else PLAIN for p in params]

    def step(*order):
        tokens = step_of(batch, scores[: len(order)], [spoken[i] for i in order], [params[i] for i in order])
        for i, token in zip(order, tokens, strict=True):
            spoken[i].append(token)

    batch.change(Change(added=[(i, requests[i], [], spoken[i]) for i in range(4)]))
    step(0, 1, 2, 3)
    batch.change(Change(moved=[(0, 3, "SWAP")]))
    step(3, 1, 2, 0)
    batch.change(Change(removed=[1], moved=[(3, 1, "UNIDIRECTIONAL")]))
    step(3, 0, 2)
    batch.change(Change(removed=[0], added=[(0, requests[4], [], spoken[4])]))
    step(4, 0, 2)


def test_no_end_is_drawn_before_the_least_number_of_its_own_tokens_nor_another_than_the_only_one(batch, scores):
    likely = scores[:2].clone()
    likely[:, 70:] += 6
    params = [{"first_end": 70, "least": 5, "drawn": (1, 2)}, {"first_end": 70, "only_end": 72, "window": 0}]
    spoken: list[list[int]] = [[], []]
    batch.change(Change(added=[(row, asking(**params[row]), [], spoken[row]) for row in range(2)]))
    for step in range(12):
        for row, token in enumerate(step_of(batch, likely, spoken, params)):
            spoken[row].append(token)
            assert token in range(71) or (row == 0 and step >= 5) or token == 72
            assert row or step >= 5 or token < 70
    assert max(spoken[0]) >= 70 and 72 in spoken[1]


class Vllm:
    """Rows of a batch as vLLM keeps them (gpu_input_batch.py): the lowest gaps are filled first by rows that come, then
    by the last ones; a list grows by a placeholder when its draw is not thrown away."""

    def __init__(self, batch, seed):
        self.batch, self.chance, self.rows, self.preempted = batch, random.Random(seed), [], 0
        self.waiting = [self.request(number) for number in range(60)]

    def request(self, number):
        choice = self.chance.choice
        params = {
            "seed": number, "window": choice([0, 3, 10, MAX_WINDOW]), "top_k": choice([1, 5, 25]),
            "top_p": choice([0.3, 0.8, 1.0]), "tau": choice([0.1, 0.3]), "temperature": choice([0.3, 1.0, 2.0]),
            "drawn": tuple(range(number % 4)), "first_end": 60, "least": number % 6,
            "only_end": choice([-1, -1, 65]),
        }  # fmt: skip
        return SimpleNamespace(
            params=None if number % 7 == 6 else params, spoken=[], list=[], prompt_steps=number % 3
        )

    def change(self):
        rows, added, moved = self.rows, [], []
        gaps = [at for at in range(len(rows)) if self.chance.random() < 0.06]
        left = len(rows) - len(gaps)
        for at in gaps:
            if self.chance.random() < 0.5:
                self.preempted += 1
                rows[at].prompt_steps = self.chance.randrange(3)
                self.waiting.append(rows[at])
        while self.waiting and (gaps or len(rows) < 6) and self.chance.random() < 0.5:
            request, at = self.waiting.pop(0), gaps.pop(0) if gaps else len(rows)
            request.list, left = list(request.spoken), left + 1
            rows[at : at + 1] = [request]
            added.append((at, PLAIN if request.params is None else asking(**request.params), [], request.list))
        last = len(rows) - 1
        while gaps:
            while last in gaps:
                last -= 1
            if gaps[0] >= last:
                break
            moved.append((last, gaps[0], "UNIDIRECTIONAL"))
            rows[gaps.pop(0)] = rows[last]
            last -= 1
        del rows[left:]
        if len(rows) > 1 and self.chance.random() < 0.2:
            one, other = self.chance.sample(range(len(rows)), 2)
            rows[one], rows[other] = rows[other], rows[one]
            moved.append((one, other, "SWAP"))
        if added or moved or gaps:
            self.batch.change(Change(added=added, removed=gaps, moved=moved))

    def step(self, number):
        scores = 2 * torch.randn(len(self.rows), 80, generator=torch.Generator().manual_seed(number))
        tokens = step_of(
            self.batch, scores, [row.spoken for row in self.rows], [row.params for row in self.rows]
        )
        for row, token in zip(self.rows, tokens, strict=True):
            if row.prompt_steps:
                row.prompt_steps -= 1
            else:
                row.spoken.append(token)
                row.list.append(-1)


def test_whatever_becomes_of_a_batch_each_row_draws_by_what_it_spoke(batch):
    vllm, drawn_rows = Vllm(batch, seed=4), 0
    for number in range(60 if INTERPRETED else 300):
        vllm.change()
        if vllm.rows:
            vllm.step(number)
            drawn_rows += len(vllm.rows)
    assert drawn_rows > 200 and vllm.preempted > 5


def test_a_batch_that_asks_for_nothing_is_left_alone(batch, scores):
    batch.change(Change(added=[(0, PLAIN, [], [])]))
    assert torch.equal(batch.apply(scores[:1].clone()), scores[:1])


# The draw: by seed and place alone.


def test_numbers_are_even_and_those_of_neighbouring_seeds_and_places_are_independent():
    """Chi-square of pairs over 16 x 16 cells; limits at z = 3.7; nothing is random."""
    seeds, places = np.meshgrid(np.arange(200, dtype=np.uint64), np.arange(200), indexing="ij")
    unit = numbers(begun(seeds.ravel()), places.ravel()).reshape(200, 200) / 2.0**53
    assert unit.min() >= 0 and unit.max() < 1
    for one, other in ((unit[:-1], unit[1:]), (unit[:, :-1], unit[:, 1:])):  # the next seed, the next place
        counts = np.histogram2d(one.ravel(), other.ravel(), 16, [[0, 1], [0, 1]])[0]
        expected = one.size / 256
        limit = 255 * (1 - 2 / (9 * 255) + 3.7 * (2 / (9 * 255)) ** 0.5) ** 3
        assert ((counts - expected) ** 2 / expected).sum() < limit


def test_fifty_thousand_draws_follow_the_probabilities():
    """Chi-square of one row of 40 tokens, a quarter of them impossible; limit at z = 3.7; seeds are fixed."""
    log_probs = torch.randn(1, 40, generator=torch.Generator().manual_seed(3)) * 1.5
    log_probs[0, ::4] = float("-inf")
    count, chosen = 50_000, log_probs[0].softmax(0).double().numpy()
    number = torch.from_numpy(numbers(begun(np.full(count, 7, np.uint64)), np.arange(count)))[:, None]
    tokens = drawn(log_probs.expand(count, -1), number)
    observed = torch.bincount(tokens[:, 0], minlength=40).numpy()
    able = chosen > 0
    assert observed[~able].sum() == 0
    expected, freedom = chosen[able] * count, able.sum() - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 3.7 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert ((observed[able] - expected) ** 2 / expected).sum() < limit


def test_the_least_and_the_greatest_number_draw_possible_tokens_and_a_broken_row_some_token():
    log_probs = torch.tensor([[float("-inf"), -1.0, -2.0, float("-inf")]] * 2 + [[float("nan")] * 4])
    tokens = drawn(log_probs, torch.tensor([[0], [2**53 - 1], [5]]))
    assert tokens[:2].tolist() == [[1], [2]] and 0 <= tokens[2] < 4


def test_a_row_draws_the_same_in_any_place_company_and_after_a_resumption(scores):
    """As vLLM moves rows about: the token depends on seed, what was spoken and the scores of that row."""

    def token(batch, rows, row):
        return batch.apply(rows.clone())[row].argmax().item()

    alone, spoken = RasBatch(4), []
    alone.change(Change(added=[(0, asking(seed=5), [], spoken)]))
    for _ in range(14):
        spoken.append(token(alone, scores[:1], 0))
    expected = spoken
    assert len(set(expected)) > 3

    beside, spoken = RasBatch(4), []
    beside.change(
        Change(added=[(0, asking(seed=9), [], []), (1, asking(seed=5), [], spoken), (2, PLAIN, [], [])])
    )
    for step in range(14):
        if step == 7:
            beside.change(Change(moved=[(1, 0, "SWAP")]))
        if step == 10:  # preempted, and back with its whole past
            beside.change(Change(removed=[0]))
            beside.change(Change(added=[(0, asking(seed=5), [], spoken)]))
        rows = scores[[1, 0, 2]] if step < 7 else scores[[0, 1, 2]]
        spoken.append(token(beside, rows, 1 if step < 7 else 0))
    assert spoken == expected
    other = RasBatch(4)
    other.change(Change(added=[(n, asking(seed=n), [], []) for n in range(4)]))
    assert len({token(other, scores[:1].expand(4, -1), n) for n in range(4)}) > 1


@pytest.mark.parametrize(
    "bad",
    [{"temperature": 0}, {"temperature": float("nan")}, {"top_p": 1.5}, {"top_p": 0}, {"top_k": 0},
     {"top_k": 2.5},
     {"top_k": True}, {"window": -1}, {"window": 1000}, {"tau": "x"}, {"drawn": ["x"]}, {"drawn": [0] * 101},
     {"seed": -1}, {"seed": 1 << 64}, {"seed": 0.5}, {"least": -1}, {"first_end": 0.5}, {"only_end": -2}],
)  # fmt: skip
def test_parameters_that_would_break_the_engine_are_refused_before_it(bad):
    with pytest.raises(ValueError, match="ras"):
        RasParams.of(SimpleNamespace(extra_args={"ras": bad}))


@pytest.mark.parametrize("bad", [7, [1], {"nucleus": 0.5}])
def test_something_else_in_the_place_of_parameters_is_refused(bad):
    with pytest.raises(ValueError, match="ras takes"):
        RasParams.of(SimpleNamespace(extra_args={"ras": bad}))


def test_tau_times_window_is_the_number_of_repeats_needed():
    assert RasParams().repeats_needed == 1
    assert RasParams(window=10, tau=0.3).repeats_needed == 3
    assert RasParams(window=10, tau=0).repeats_needed == 1
