"""What hpkit knows about Slurm's names, against a real controller. The client itself: test_contract.py."""

from __future__ import annotations

import pytest

from hpkit import hostlist
from hpkit.errors import SlurmError
from hpkit.sandbox.cluster import Cluster
from hpkit.slurm.client import Client
from hpkit.slurm.names import own_node
from tests.support.refused import refusal


@pytest.fixture
def client(cluster: Cluster) -> Client:
    return cluster.client


def test_own_name(client: Client) -> None:
    hosts = {node.hostname for node in client.nodes()}
    assert refusal(own_node, client, hosts.pop()).kind == "unknown"  # all four share this host
    assert own_node(client, "x", given="n2") == "n2"


@pytest.mark.parametrize(
    "expression",
    ["n[9-11]", "n[09-11]", "rack[0-1]_b[0-1]", "a,b[001,003],c", "login", " n1 , n2 ", "(null)", "c1-s[11,17]", "a[2-4,1]"],
)  # fmt: skip
def test_our_host_lists_are_slurms(client: Client, expression: str) -> None:
    assert hostlist.expand(expression) == client.hostnames(expression)


@pytest.mark.parametrize("expression", ["x[1-2", "x[]", "x[3-1]", "n[1-100000]"])
def test_what_is_no_host_list(client: Client, expression: str) -> None:
    assert refusal(client.hostnames, expression).kind == "refused"
    with pytest.raises(ValueError):
        hostlist.expand(expression)


@pytest.mark.parametrize("expression", ["g[1-3,07]-ib", "b1n1,b2[05]n3"])
def test_what_only_newer_releases_take(client: Client, expression: str) -> None:
    try:
        names = client.hostnames(expression)
    except SlurmError as error:
        assert error.kind == "refused"
    else:
        assert names == hostlist.expand(expression)
