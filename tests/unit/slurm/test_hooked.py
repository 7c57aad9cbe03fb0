"""What slurm.conf does with the hooks: each thing that would hurt is found, and a good one is called good."""

from __future__ import annotations

import pytest

from hpkit.config import HooksConfig
from hpkit.node import verdict
from hpkit.slurm import hooked
from hpkit.slurm.abilities import Abilities

OLD = Abilities("22.05.8", (22, 5))
NEW = Abilities("26.05.5", (26, 5), many_hooks=True)

GOOD = {
    "Prolog": "/opt/hpkit/hooks/prolog/hpkit",
    "Epilog": "/opt/hpkit/hooks/epilog/hpkit",
    "HealthCheckProgram": "/opt/hpkit/hooks/prolog/hpkit-health",
    "HealthCheckInterval": "60 sec",
    "HealthCheckNodeState": "ANY",
    "PrologFlags": "Alloc",
    "PrologEpilogTimeout": "65534",
    "SchedulerParameters": "nohold_on_prolog_fail",
}


def worst(**changes: str) -> list[tuple[str, str]]:
    found = hooked.advice({**GOOD, **changes}, HooksConfig(), OLD)
    return [(each.status, each.text + " " + each.hint) for each in found if each.status != "ok"]


def test_a_good_configuration_has_nothing_to_say_against_it() -> None:
    assert worst() == []
    assert len(list(hooked.advice(GOOD, HooksConfig(), OLD))) == 3


def test_a_list_of_prologs() -> None:
    listed = {
        **{k: v for k, v in GOOD.items() if k != "Prolog"},
        "Prolog[0]": "/x/site",
        "Prolog[1]": GOOD["Prolog"],
    }
    assert hooked.listed(listed, "Prolog") == ("/x/site", GOOD["Prolog"])
    assert hooked.named(listed, "Prolog")
    assert not [each for each in hooked.advice(listed, HooksConfig(), NEW) if each.status != "ok"]


@pytest.mark.parametrize(
    "changes, status, says",
    [
        ({"Prolog": ""}, "warn", "no Prolog is set"),
        ({"Epilog": "/etc/slurm/epilog.d/*"}, "warn", "/etc/slurm/epilog.d/*, not hpkit's"),
        ({"HealthCheckProgram": "/usr/sbin/nhc"}, "warn", "/usr/sbin/nhc"),
        ({"PrologFlags": ""}, "warn", "PrologFlags=Alloc"),
        ({"PrologFlags": "Serial"}, "warn", "PrologFlags=Alloc"),
        ({"SchedulerParameters": "bf_interval=3"}, "warn", "nohold_on_prolog_fail"),
        ({"PrologEpilogTimeout": "10"}, "bad", "hpkit's prolog may take 10 s"),
        ({"PrologEpilogTimeout": "20"}, "bad", "hpkit's epilog may take 20 s"),
        ({"PrologTimeout": "5 sec"}, "bad", "PrologTimeout is 5 s"),
        ({"HealthCheckInterval": "0 sec"}, "bad", "no background rounds"),
        ({"HealthCheckInterval": "600 sec"}, "bad", "600 s"),
        ({"HealthCheckInterval": "181 sec"}, "bad", "181 s"),
        ({"HealthCheckInterval": "90 sec"}, "warn", "90 s"),
        ({"HealthCheckInterval": "30 sec"}, "warn", "30 s"),
        ({"HealthCheckNodeState": "START_ONLY"}, "bad", "no background rounds"),
        ({"HealthCheckNodeState": "REBOOT_ONLY"}, "bad", "no background rounds"),
        ({"HealthCheckNodeState": "NONDRAINED_IDLE"}, "warn", "NONDRAINED_IDLE"),
        ({"HealthCheckNodeState": "IDLE"}, "warn", "state IDLE"),
        ({"HealthCheckNodeState": "CYCLE,IDLE"}, "warn", "CYCLE,IDLE"),
        ({"HealthCheckTimeout": "40 sec"}, "bad", "killed after 40 s"),
    ],
)  # fmt: skip
def test_what_would_hurt(changes: dict[str, str], status: str, says: str) -> None:
    found = worst(**changes)
    assert [(s, says in text) for s, text in found if says in text] == [(status, True)], found


@pytest.mark.parametrize(
    "changes",
    [
        {"PrologFlags": "Alloc,Contain,DeferBatch"},
        {"PrologEpilogTimeout": "60", "PrologTimeout": "15 sec"},
        {"PrologEpilogTimeout": "10", "PrologTimeout": "15 sec", "EpilogTimeout": "30 sec"},
        {"HealthCheckNodeState": "CYCLE,ANY"},
        {"HealthCheckNodeState": ""},
        {"PrologEpilogTimeout": "0"},
        {"PrologEpilogTimeout": "65535"},
        {"HealthCheckTimeout": "0 sec"},
    ],
)
def test_what_is_fine(changes: dict[str, str]) -> None:
    assert worst(**changes) == []


def test_a_verdict_is_valid_as_long_as_this_says() -> None:
    assert hooked.EXTRA_S == verdict.EXTRA_S


def test_a_health_program_that_is_not_ours_is_not_judged() -> None:
    assert [text for _, text in worst(HealthCheckProgram="", HealthCheckInterval="0 sec")] == [
        "no HealthCheckProgram is set add to slurm.conf: HealthCheckProgram=…/prolog/hpkit-health"
    ]


@pytest.mark.parametrize(
    "able, says", [(OLD, "let it call"), (NEW, "add a line beside it: Prolog=…/prolog/hpkit")]
)
def test_a_prolog_of_the_sites_own(able: Abilities, says: str) -> None:
    found = list(hooked.advice({**GOOD, "Prolog": "/x/site"}, HooksConfig(), able))
    assert [says in each.hint for each in found if "/x/site" in each.text] == [True]


@pytest.mark.parametrize("able, says", [(OLD, "make PrologEpilogTimeout"), (NEW, "set EpilogTimeout")])
def test_the_timeout_that_this_slurm_has(able: Abilities, says: str) -> None:
    found = list(hooked.advice({**GOOD, "PrologEpilogTimeout": "15"}, HooksConfig(), able))
    assert [says in each.hint for each in found if each.status == "bad"] == [True]


def test_where_the_nodes_settings_are_not_known() -> None:
    found = list(
        hooked.advice({**GOOD, "HealthCheckInterval": "600 sec", "PrologEpilogTimeout": "5"}, None, OLD)
    )
    assert [each for each in found if each.status != "ok"] == []
    none = list(hooked.advice({**GOOD, "HealthCheckInterval": "0 sec"}, None, OLD))
    assert [each.status for each in none if "HealthCheckInterval" in each.text] == ["bad"]


@pytest.mark.parametrize("able, says", [(OLD, False), (NEW, True)])
def test_an_epilog_that_may_call_hpkits_does_not_count_for_expedited_requeue(
    able: Abilities, says: bool
) -> None:
    found = list(hooked.advice({**GOOD, "Epilog": "/x/site"}, HooksConfig(), able))
    assert ["expedited" in each.text for each in found if "/x/site" in each.text] == [says]
