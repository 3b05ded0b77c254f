"""false_alarms: what the docs promise of the gate, simulated with a fixed seed, and campaigns of real processes."""

import dataclasses
import json

import numpy as np
import pytest
from scipy import stats

from tirx_ladder.compare import slowdown
from tirx_ladder.compare.measured import Timed, unfit
from tirx_ladder.false_alarms import __main__ as command
from tirx_ladder.false_alarms import drawn, pools, rates, simulated
from tirx_ladder.ladder import UsageError
from tirx_ladder.policy import Policy
from tirx_ladder.results import Process, Samples

QUIET, NOISIER = simulated.NOISES[:2]
CAPPED = simulated.NOISES[3]
PESSIMISTIC = simulated.NOISES[-1]


def seeded():
    return np.random.default_rng(20261130)


@pytest.mark.parametrize("noise", simulated.NOISES, ids=lambda noise: noise.name)
def test_no_campaign_in_a_hundred_raises_a_false_alarm(noise):
    """600 campaigns of 18 rows: with no alarm at all, the exact upper bound is 0.6 %."""
    found = simulated.false_alarms(noise, 0.0, 600, seeded())
    assert rates.interval(found.count("slower"), found.trials)[1] < 0.01


def test_even_slowdowns_of_just_the_margin_raise_few_alarms():
    """600 campaigns whose 18 rows are all slower by the margin, one alarm in a hundred: 15 are 3.7 sigma too many."""
    for noise in (QUIET, CAPPED, PESSIMISTIC):
        found = simulated.false_alarms(noise, Policy().max_slowdown, 600, seeded())
        assert found.count("slower") <= 15


@pytest.mark.parametrize("noise", simulated.NOISES[:-1], ids=lambda noise: noise.name)
def test_a_slowdown_of_one_per_cent_is_found_95_times_in_a_hundred(noise):
    found = simulated.detection(noise, 0.01, 500, seeded())
    assert found.count("slower") >= 0.95 * found.trials
    assert found.count("not-slower") == 0


def test_in_much_noise_two_per_cent_are_found_and_one_never_passes():
    assert simulated.detection(PESSIMISTIC, 0.02, 500, seeded()).count("slower") >= 475
    assert simulated.detection(PESSIMISTIC, 0.01, 500, seeded()).count("not-slower") == 0


def test_a_slowdown_of_the_margin_passes_once_in_twenty_at_most():
    """1000 rows at 5 %: 75 are 3.6 sigma too many."""
    for noise in (QUIET, NOISIER, PESSIMISTIC):
        assert simulated.detection(noise, Policy().max_slowdown, 1000, seeded()).count("not-slower") <= 75


@pytest.mark.parametrize("seconds", [0.01, 0.06, None])
def test_the_study_judges_as_the_gate_does(seconds):
    """The same log-ratios, as arrays by the study and as samples by the gate, with the pairs that the gate asks for."""
    rng = seeded()
    slowdowns = np.tile([0.0, 0.005, 0.007, 0.01, 0.02, 0.0, 0.0, 0.0], (20, 1))
    clocks = np.tile([0.0, 0.0, 0.0, 0.0, -0.02, 0.01, 0.03, 0.0], (20, 1))
    noise = dataclasses.replace(NOISIER, within=0.02, seconds=seconds)
    ratios = simulated.log_ratios(noise, slowdowns, 32, rng, clocks)
    quick = simulated.judge(ratios, Policy())
    for i, campaign in enumerate(ratios.deciding):
        counts = [8] * len(campaign)
        while True:
            rows = [
                row_of(*(None if of is None else of[i, j, :count] for of in (ratios.deciding, ratios.seconds)))
                for j, count in enumerate(counts)
            ]
            found = slowdown.judge(rows, Policy())
            if not any(f.more_pairs for f in found):
                break
            counts = [count + f.more_pairs for count, f in zip(counts, found, strict=True)]
        said = [f.code if f.code in ("slower", "not-slower", "clock-change") else "undecided" for f in found]
        assert said == [next(reason for reason, of in quick.counts().items() if of[i, j]) for j in range(len(said))]
        assert counts == quick.pairs[i].tolist()
    assert {8, 32} < set(quick.pairs.ravel().tolist())
    assert all(of.any() for reason, of in quick.counts().items() if seconds or reason != "clock-change")


def row_of(deciding, seconds):
    """A row that shows these log-ratios in cycles and in seconds; seconds None: no clock is known."""
    clock = np.zeros_like(deciding) if seconds is None else deciding - seconds
    sides = []
    for cycles, hz in ((0 * deciding, 0 * clock), (deciding, clock)):
        each = zip((1e-4 * np.exp(cycles - hz)).tolist(), (1.5e9 * np.exp(hz)).tolist(), strict=True)
        processes = tuple(Process((t,), () if seconds is None else (at,), 0, ()) for t, at in each)
        sides.append(Samples("s", True, 1, 0.0, processes))
    return Timed("v", None, *sides)


@pytest.mark.parametrize("noise", simulated.CLOCKS[3:6], ids=lambda noise: noise.name)
def test_noise_in_seconds_seldom_keeps_a_row_that_is_no_slower_from_passing(noise):
    """600 rows (seeded) in cycles of 0.25 %: 4 % are 2.2 % and three standard errors."""
    found = simulated.detection(noise, 0.0, 600, seeded())
    assert found.count("clock-change") <= 0.04 * found.trials
    assert found.count("not-slower") >= 0.96 * found.trials


def test_a_kernel_that_only_lowers_the_clock_seldom_passes():
    """Of 2 % at 0.5 % of noise in seconds none, of 5 % at 6 % one in four at most."""
    calm, loud = simulated.CLOCKS[3], simulated.CLOCKS[5]
    assert simulated.detection(calm, 0.0, 500, seeded(), clock=0.02).count("not-slower") == 0
    found = simulated.detection(loud, 0.0, 500, seeded(), clock=0.05)
    assert found.count("clock-change") >= 0.75 * found.trials
    assert found.count("slower") == 0


def test_a_steady_drift_cancels():
    drifting = simulated.Noise("drift", between=1e-6, within=0.0, drift=0.1)
    ratios = simulated.log_ratios(drifting, np.array([[0.01]]), 8, seeded())
    assert ratios.deciding.mean() == pytest.approx(np.log(1.01), abs=1e-5)
    assert abs(ratios.deciding[0, 0] - np.log(1.01)).min() > 0.005  # and it is there


def test_the_interval_is_clopper_and_pearsons():
    assert rates.interval(0, 60) == pytest.approx((0.0, 1 - 0.025 ** (1 / 60)))
    assert rates.interval(3, 40) == pytest.approx((stats.beta.ppf(0.025, 3, 38), stats.beta.ppf(0.975, 4, 37)))
    assert rates.interval(0, 0) == (0.0, 1.0)


def test_a_table_has_a_line_for_each_kind():
    found = rates.Rates("null", 0.0, 60, {"slower": 3, "not-slower": 57}, 8.25)
    resampled = dataclasses.replace(found, apart=False)
    assert rates.table([found, resampled], "what", ("slower", "not-slower")).splitlines() == [
        "| what | slowdown | trials | slower | exact 95 % | not-slower | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| null | 0 % | 60 | 5.0 % | 1.04 to 13.92 % | 95.0 % | 8.2 |",
        "| null | 0 % | 60 | 5.0 % | - | 95.0 % | 8.2 |",
    ]


VARIANTS = (("base", 0.0), ("null", 0.0), ("slow1", 0.01), ("slow5", 0.05))
GPU = {"name": "a GPU", "uuid": "GPU-1", "driver": "580.1", "sms": 132, "peak_tflops": None, "bandwidth_bytes_s": None}


def campaign(count=136, spread=0.0015, clocks=0.0, variants=VARIANTS):
    """A campaign as JSON data: two problems, one disturbed process; spread of cycles, and of clocks."""
    rng = seeded()
    made = []
    for problem, unit in (("4096x4096x4096", 187e-6), ("8192x8192x8192", 1.45e-3)):
        for variant, planted in variants:
            hz = 1.6e9 * np.exp(clocks * rng.standard_normal(count))
            times = unit * (1 + planted) * (1 + spread * rng.standard_normal(count)) * 1.6e9 / hz
            processes = [
                {
                    "seconds": [0.99 * time, time, 1.02 * time],
                    "clock_hz": [at] * 3,
                    "rank": rank,
                    "marks": ["throttled"] if rank == 50 and variant == "null" else [],
                }
                for rank, (time, at) in enumerate(zip(times.tolist(), hz.tolist(), strict=True))
            ]
            rng.shuffle(processes)
            made.append({"problem": problem, "variant": variant, "planted": planted, "processes": processes})
    return {"schema": 1, "gpu": GPU, "protocol": 1, "pools": made}


def written(tmp_path, data):
    path = tmp_path / "campaign.json"
    path.write_text(json.dumps(data))
    return path


def test_a_campaign_is_judged_and_its_tables_are_written(tmp_path, capsys):
    path = written(tmp_path, campaign())
    assert command.main([str(path), "--trials", "4", "--write", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "false-alarms-measured.md").read_text()
    assert text in capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "false-alarms-measured.json").read_text())["study"]
    assert 0 < found["floor"] < 0.005
    null = {one["kind"]: one for one in found["null"]}
    assert null["all problems, apart"]["reasons"] == {"not-slower": null["all problems, apart"]["trials"]}
    # 135 processes, or 119 after those for the floor, 16 each or a few more, two problems, four ways: 60 or a few less
    assert 48 <= null["all problems, apart"]["trials"] <= 60
    assert f"{null['all problems, apart']['trials']} null comparisons share no measurement" in text
    assert found["units"] == {"4096x4096x4096": "cycles", "8192x8192x8192": "cycles"}
    assert [one["trials"] for one in found["campaigns"]] == [4]
    slow = {(one["kind"], one["planted"]): one for one in found["found"]}
    for (_, planted), one in slow.items():
        assert one["reasons"] == {"slower": one["trials"]}, planted
    assert len(slow) == 10
    for planted, fewest in ((0.01, 14), (0.05, 26)):
        each = [
            one["trials"] for (kind, of), one in slow.items() if of == planted and kind[0].isdigit() and one["apart"]
        ]
        assert slow["all problems, apart", planted]["trials"] == sum(each) >= fewest
    variants = {(one["problem"], one["variant"]): one for one in found["variants"]}
    assert variants["4096x4096x4096", "slow5"]["slowdown"] == pytest.approx(0.05, abs=0.002)
    assert {one["processes"] for one in variants.values()} == {135}
    assert "| 8192x8192x8192 | slow1 | 1 % |" in text
    assert "a GPU, driver 580.1" in text


def test_a_campaign_under_a_power_cap_is_judged_in_cycles_and_without_clocks_it_cannot_be(tmp_path, capsys):
    """Clocks vary by 6 %: 5 % are found in cycles and not in seconds."""
    data = campaign(clocks=0.06)
    runs = {}
    for unit in ("cycles", "seconds"):
        assert command.main([str(written(tmp_path, data)), "--trials", "4", "--write", str(tmp_path)]) == 0
        runs[unit] = json.loads((tmp_path / "false-alarms-measured.json").read_text())["study"]
        assert f"8192x8192x8192 is judged in {unit}" in capsys.readouterr().out
        for pool in data["pools"]:
            pool["processes"][5]["clock_hz"] = []
    for unit, found in runs.items():
        slow = [one for one in found["found"] if one["planted"] == 0.05 and not one["apart"]]
        assert [one["reasons"].get("slower", 0) for one in slow] == [4 * (unit == "cycles")] * 2
        spread = max(one["spread"] for one in found["variants"])
        assert (spread < 0.003) == (unit == "cycles")
        assert min(one["seconds_spread"] for one in found["variants"]) > 0.04


def test_the_simulated_study_is_made_again_the_same_from_its_seed(tmp_path):
    for folder in ("one", "two"):
        assert command.main(["--trials", "2", "--write", str(tmp_path / folder)]) == 0
    one, two = ((tmp_path / of / "false-alarms-simulated.json").read_text() for of in ("one", "two"))
    assert one == two
    text = (tmp_path / "one" / "false-alarms-simulated.md").read_text()
    assert all(noise.name in text for noise in (*simulated.NOISES, *simulated.CLOCKS))


def test_what_is_drawn_is_in_turn_and_never_has_a_process_on_both_sides():
    (lane, _) = pools.lanes(pools.Pools(**plain_pools(campaign())))
    rated = drawn._Rated(1, 0.001, (lane,), seeded())
    for _ in range(20):
        row = rated._any(lane, "base", "slow1").timed(32, 1, 0.001)
        assert unfit(row.base, row.head, Policy(), ("x", "x")) == ()
        ranks = [[p.rank for p in side.processes] for side in (row.base, row.head)]
        assert not set(ranks[0]) & set(ranks[1])
        assert min(map(min, ranks)) >= drawn.FOR_THE_FLOOR
        assert max(abs(a - b) for a, b in zip(*ranks, strict=True)) <= 2  # neighbours; 50 was disturbed


def plain_pools(data):
    made = tuple(
        pools.Pool(p["problem"], p["variant"], p["planted"], tuple(
            Process(tuple(one["seconds"]), tuple(one["clock_hz"]), one["rank"], tuple(one["marks"]))
            for one in p["processes"]
        ))
        for p in data["pools"]
    )  # fmt: skip
    return data | {"gpu": None, "pools": made}


def test_windows_that_are_apart_share_no_process():
    (lane, _) = pools.lanes(pools.Pools(**plain_pools(campaign())))
    seen = []

    class Watched(drawn._Rated):
        def _judge(self, draws):
            found = super()._judge(draws)
            seen.append(draws[0].places[: 2 * found[0][1]])
            return found

    rated = Watched(1, 0.001, (lane,), seeded())
    outcomes = rated._windows(lane, "base", "null", list)
    places = [place for window in seen for place in window]
    assert len(places) == len(set(places))
    assert len(outcomes) == 7
    seen.clear()
    rated.planted(lane, "slow5")
    of_variant = [place for window in seen for i, place in enumerate(window) if i % 4 in (1, 2)]
    assert len(of_variant) == len(set(of_variant)) >= 8 * 13


WRONG = [
    (lambda data: data.update(schema=2), "schema 1"),
    (lambda data: data.update(gpu="H200"), "gpu"),
    (lambda data: data.update(pools=[]), "no pool"),
    (lambda data: data["pools"].pop(0), "variant 'base' is missing"),
    (lambda data: data["pools"].pop(1), "variant 'null' is missing"),
    (lambda data: data["pools"].append(data["pools"][0]), "4096x4096x4096, base: it is there twice"),
    (lambda data: data["pools"][2]["processes"].pop(), "4096x4096x4096, slow1: each process of the campaign once"),
    (lambda data: data["pools"][2]["processes"][3].update(rank=7), "slow1: each process of the campaign once"),
    (lambda data: data["pools"][2]["processes"][3].update(seconds=[]), "slow1: positive, finite times"),
    (lambda data: data["pools"][2]["processes"][3].update(seconds=[0.0] * 3), "slow1: positive, finite times"),
    (lambda data: data["pools"][2]["processes"][3].update(clock_hz=[1e9]), "slow1: positive, finite times"),
    (lambda data: data["pools"][2]["processes"][3].update(seconds=[float("nan")] * 3), "a finite number"),
    (lambda data: data["pools"][2].update(colour="red"), "unknown key 'colour'"),
    (
        lambda data: [p.update(marks=["busy"]) for p in data["pools"][0]["processes"][:20]],
        "clean processes, 120 or more",
    ),
]


@pytest.mark.parametrize(("change", "named"), WRONG, ids=[case[1] for case in WRONG])
def test_a_campaign_that_cannot_be_judged_is_refused_in_one_line(tmp_path, capsys, change, named):
    data = campaign()
    change(data)
    assert command.main([str(written(tmp_path, data)), "--write", str(tmp_path)]) == 2
    told = capsys.readouterr().err.strip()
    assert named in told
    assert len(told.splitlines()) == 1


def test_a_campaign_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        pools.read(tmp_path / "nowhere.json")
    (tmp_path / "x.json").write_text("{")
    with pytest.raises(UsageError, match="is not JSON"):
        pools.read(tmp_path / "x.json")
