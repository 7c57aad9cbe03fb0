"""Host lists: a table, properties, and the real scontrol where there is one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpkit import proc
from hpkit.hostlist import LIMIT, expand, fold

ACCEPTED: list[tuple[str, str | None]] = [
    ("node[8-11]", "node8 node9 node10 node11"),
    ("node[08-11]", "node08 node09 node10 node11"),
    ("g[098-101]", "g098 g099 g100 g101"),
    ("g[9-011]", "g9 g10 g11"),
    ("g[3,03,003]", "g3 g03 g003"),
    ("r[1-2]u[7,9]", "r1u7 r1u9 r2u7 r2u9"),
    ("a[1-2]b[1-2]c[1-2]", "a1b1c1 a1b1c2 a2b1c1 a2b1c2 a1b2c1 a1b2c2 a2b2c1 a2b2c2"),
    ("a[1-2]b[3-4]c[5-6]d[7-8]", None),
    ("x[1-2][3-4]", "x13 x14 x23 x24"),
    ("p4d-c+x_[1-2]", "p4d-c+x_1 p4d-c+x_2"),
    ("one,two[5,7],three", "one two5 two7 three"),
    (" one ,\ttwo\nthree ", "one two three"),
    (",,one,", "one"),
    ("[3-5]", "3 4 5"),
    ("head", "head"),
    ("w[7-7]", "w7"),
    ("w[2,1]", "w2 w1"),
    ("gpu-1.example", "gpu-1.example"),
    ("r[1-2]-u[7-8]", "r1-u7 r1-u8 r2-u7 r2-u8"),
]
SUFFIXED: list[tuple[str, str]] = [  # older releases of Slurm refuse them
    ("x[1]suffix", "x1suffix"),
    ("x[1-2]0", "x10 x20"),
    ("[1-2]x", "1x 2x"),
    ("g[1-3,07]-ib", "g1-ib g2-ib g3-ib g07-ib"),
    ("x[1]y[2]z", "x1y2z"),
    ("a[1-2]b[1-2]c", "a1b1c a1b2c a2b1c a2b2c"),
    ("b1n1,b2[05]n3", "b1n1 b205n3"),
]
REPEATED: list[tuple[str, str | None]] = [("n[1-3,2-4]", "n1 n2 n3 n4"), ("n[1-2],n[1-2],n2", "n1 n2")]
REFUSED = [
    "x[1-2",
    "x[1-2]]",
    "x]1",
    "x[[1]]",
    "x[]",
    "x[1,,2]",
    "x[1,]",
    "x[3-1]",
    "x[a-b]",
    "x[1-]",
    "x[-1]",
    "x[+1]",
    "x[1- 2]",
    "x[1-2-3]",
    "x[1]a b[2]=",
    "x[1]/y",
    "-x[1]",
    "n[1-100000]",
    "n[1-400]m[1-400]",
    "n[99999999999999999999]",
    "a;reboot",
    "a=b",
    "$(id)",
    "--all",
    "(null),a",
    "a\0b",
]


@pytest.mark.parametrize(("text", "names"), [row for row in ACCEPTED if row[1]] + REPEATED + SUFFIXED)
def test_expand(text: str, names: str | None) -> None:
    assert names
    assert expand(text) == tuple(names.split())


@pytest.mark.parametrize("text", ["", "  ", "(null)", " (null) "])
def test_no_names(text: str) -> None:
    assert expand(text) == ()


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_a_clear_text(text: str) -> None:
    with pytest.raises(ValueError, match=r"^host list '.*': .+"):
        expand(text)


def test_limit() -> None:
    assert len(expand(f"n[0-{LIMIT - 1}]")) == LIMIT
    for text in (f"n[0-{LIMIT}]", f"n[1-{LIMIT}],m", "a,b,c[1-3]"):
        with pytest.raises(ValueError, match="too many"):
            expand(text, LIMIT if "n" in text else 4)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ((), ""),
        (("n2", "n1", "n3", "n1"), "n[1-3]"),
        (("n09", "n10", "n11"), "n[09-11]"),
        (("n1", "n01", "n001", "n2"), "n[1-2,01,001]"),
        (("n1-ib", "n2-ib"), "n1-ib,n2-ib"),
        (("n7", "login"), "login,n7"),
        (("1", "2"), "[1-2]"),
    ],
)
def test_fold(names: tuple[str, ...], text: str) -> None:
    assert fold(names) == text


@pytest.mark.parametrize("name", ["", "a b", "a,b", "x[1]", "-w", "a\n"])
def test_fold_refuses_what_is_no_name(name: str) -> None:
    with pytest.raises(ValueError, match="no host name"):
        fold(["ok1", name])


PREFIX = st.from_regex(r"[a-z_][a-z0-9._-]{0,5}|", fullmatch=True)
NAMES = st.sets(
    st.builds(
        lambda prefix, number, width: (prefix + str(number).zfill(width)) or "x",
        PREFIX,
        st.integers(0, 120) | st.integers(0, 10**20),
        st.integers(0, 4),
    )
    | st.from_regex(r"[a-z][a-z.+-]{0,8}", fullmatch=True),
    max_size=40,
)


@given(NAMES)
def test_fold_and_expand_are_inverse(names: set[str]) -> None:
    assert set(expand(fold(names))) == names


@given(st.text(max_size=30) | st.from_regex(r"([a-z]{0,2}[\[\],0-9-]{0,4}){1,6}", fullmatch=True))
def test_expand_gives_names_or_one_kind_of_error(text: str) -> None:
    try:
        names = expand(text)
    except ValueError as error:
        assert str(error).startswith("host list ")
        assert len(str(error)) < 400
    else:
        assert set(expand(fold(names))) == set(names)


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The least slurm.conf with which scontrol expands names; no daemon is asked."""
    if shutil.which("scontrol") is None:
        pytest.skip("scontrol is not installed")
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=names\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n")
    return str(path)


def slurm(text: str, conf: str) -> list[str]:
    """The names as Slurm expands them, repetitions and all."""
    ran = proc.run(["scontrol", "show", "hostnames", text], timeout_s=30, env={"SLURM_CONF": conf})
    assert ran.ok and not ran.stderr, ran
    return ran.text.split()


@pytest.mark.parametrize("text", [row[0] for row in ACCEPTED + REPEATED])
def test_same_names_and_order_as_slurm(text: str, conf: str) -> None:
    assert list(expand(text)) == list(dict.fromkeys(slurm(text, conf)))


@pytest.mark.parametrize("text", [row[0] for row in SUFFIXED])
def test_suffixes_as_slurm_where_it_takes_them(text: str, conf: str) -> None:
    ran = proc.run(["scontrol", "show", "hostnames", text], timeout_s=30, env={"SLURM_CONF": conf})
    refused = not ran.text and b"Invalid hostlist" in ran.stderr
    assert refused or list(expand(text)) == ran.text.split()


@settings(max_examples=20, deadline=None)
@given(NAMES)
def test_slurm_reads_what_we_fold(conf: str, names: set[str]) -> None:
    names = {name for name in names if len(name) < 19}  # Slurm itself has no number of more than 64 bits
    assert not names or set(slurm(fold(names), conf)) == names


def test_the_fixture_speaks_to_the_real_scontrol(conf: str) -> None:
    assert Path(conf).is_file()
    assert slurm("a[1-2]", conf) == ["a1", "a2"]
