"""Lint: each rule fires on the fault that it is for, at its place, and on none of the good kernels."""

import pytest

from tirx_ladder import cases, faults, ladder
from tirx_ladder.faults.catalogue import FAULTS
from tirx_ladder.lint import RULES, lint

BAD = {  # a fault that breaks the rule, and a version to plant it in
    "ld-wait": ("no-wait-ld", "v8"),
    "tmem-free-sync": ("cta-sync-before-tmem-is-freed", "v9"),
    "tmem-free-once": ("tmem-freed-by-every-warpgroup", "v7"),
    "tmem-columns": ("tmem-columns-not-a-power-of-two", "v7"),
    "tmem-range": ("tmem-half-allocated", "v9"),
    "commit-wait": ("commit-without-a-wait", "v2"),
    "store-drain": ("store-not-drained", "v9"),
    "proxy-fence": ("proxy-fence-behind-the-sync", "v7"),
    "init-visible": ("cta-sync-after-cluster-init", "v8"),
    "fence-after": ("no-fence-after-hand-back", "v6"),
    "fence-before": ("no-fence-before-hand-back", "v9"),
    "named-barrier": ("named-barrier-shared", "v9"),
    "smem-limit": ("too-much-smem", "v9"),
}
WAIT = "T.ptx.wgmma.wait_group.sync.aligned(0)"
HOPPER_BAD = {  # what is edited in a Hopper kernel, and the one rule that it breaks
    "no wgmma.fence": ("v5", "T.ptx.wgmma.fence.sync.aligned()", "", "wgmma-fence"),
    "registers read in flight": ("v7", WAIT, WAIT.replace("0", "1"), "wgmma-wait"),
    "stage freed in flight": ("v6", WAIT, "", "wgmma-wait"),
    "nothing committed": ("v5", "T.ptx.wgmma.commit_group.sync.aligned()", "", "wgmma-wait"),
    "slice overwritten": ("v7", "wait_group.read(SLICES - 1)", "wait_group.read(4)", "store-drain"),
    "last slices not drained": ("v7", "T.ptx.cp.async_.bulk.wait_group(0)", "pass", "store-drain"),
    "CTA sync after cluster init": (
        "v6",
        "T.cuda.cluster_sync()\nsched = ClusterPersistentScheduler2D(",
        "T.cuda.cta_sync()\nsched = ClusterPersistentScheduler2D(",
        "init-visible",
    ),
}
BLACKWELL, HOPPER = ladder.load(), ladder.load("hopper_gemm")


def build(version, spec):
    sm_count = spec.sm_count or ladder.B200_SMS
    return version.build(spec.problem, sm_count=sm_count)


def planted_kernel(name, version, folder):
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    copy = ladder.load(str(faults.plant(fault, version, BLACKWELL, folder)))
    return build(copy[version], faults.specialisation(fault, copy[version]))


@pytest.mark.parametrize("spec", [s for v in BLACKWELL.versions for s in cases.quick_tier(v)], ids=lambda s: s.id)
def test_no_rule_fires_on_a_good_kernel(spec):  # the matrix itself lints every specialisation
    assert lint(build(BLACKWELL[spec.version], spec)) == []


@pytest.mark.parametrize("version", [v for v in HOPPER.versions if not v.simulated], ids=lambda v: v.name)
def test_no_rule_fires_on_a_kernel_that_the_matrix_does_not_simulate(version):
    for spec in cases.default_tier(version):
        kernel = version.build(spec.problem, sm_count=spec.sm_count or version.default_sm_count)
        assert lint(kernel) == [], spec.id


@pytest.mark.parametrize("name", HOPPER_BAD)
def test_a_fault_in_a_hopper_kernel_breaks_just_its_rule(name, tmp_path):
    version, old, new, rule = HOPPER_BAD[name]
    fault = faults.Fault("planted", "waits", "", ("lint",), "", (1, 1, 1, 1), {version: (faults.Edit(old, new),)})
    planted = ladder.load(str(faults.plant(fault, version, HOPPER, tmp_path)))[version]
    problem = planted.problem(2, 2, 8)
    assert {violation.rule for violation in lint(planted.build(problem, sm_count=4))} == {rule}


def test_every_rule_but_the_one_below_has_a_bad_example():
    assert set(BAD) | {rule for *_, rule in HOPPER_BAD.values()} | {"whole-warp"} == set(RULES)


@pytest.mark.parametrize("rule", BAD)
def test_a_rule_fires_on_its_bad_example_and_no_other_rule_does(rule, tmp_path):
    found = lint(planted_kernel(*BAD[rule], tmp_path))
    assert {violation.rule for violation in found} == {rule}


def test_a_collective_instruction_under_an_elected_lane_breaks_whole_warp(tmp_path):
    late = faults.Edit(
        "T.ptx.tcgen05.wait__ld.sync.aligned()", "if tid == 0:\n    T.ptx.tcgen05.wait__ld.sync.aligned()"
    )
    fault = faults.Fault("wait-in-one-lane", "waits", "", ("lint",), "", (1, 1, 1, 1), {"v1": (late,)})
    copy = ladder.load(str(faults.plant(fault, "v1", BLACKWELL, tmp_path)))
    found = lint(build(copy["v1"], faults.specialisation(fault, copy["v1"])))
    assert {"whole-warp", "ld-wait"} == {violation.rule for violation in found}


def test_a_violation_shows_rule_place_and_source(tmp_path):
    text = str(lint(planted_kernel("no-wait-ld", "v7", tmp_path))[0])
    assert text.startswith("ld-wait: registers are read")
    assert "v7_warp_specialised.py" in text
    assert "Tx.cast(out[:], acc[:])" in text
    assert "PTX ISA, tcgen05.ld and tcgen05.wait" in text
