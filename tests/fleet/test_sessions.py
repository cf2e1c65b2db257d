"""Insiders who open many sessions, or sessions in the id of another device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import DEADLINE
from support.zenoh_processes import MODEL, Device, becomes_true, endpoints, make_certificates

from gossamer.fleet import namespaces
from gossamer.fleet.namespaces import VirtualNetwork

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.slow

LAWLESS = {"access_control/enabled": False}
SESSIONS = 25  # more than zenoh accepts of all devices together


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture
def network() -> Iterator[VirtualNetwork]:
    if reason := namespaces.unavailable_reason():
        pytest.skip(reason)
    with VirtualNetwork(4, f"test-{os.getpid()}-sessions-") as made:
        for a, b in ((0, 1), (0, 3), (1, 3)):
            made.link(a, b, up=True)
        yield made


@pytest.mark.parametrize("insider", [3, None], ids=["device", "observer"])
def test_many_sessions_of_one_certificate_keep_nobody_out(
    network: VirtualNetwork, folder: Path, insider: int | None
) -> None:
    first = Device(network, folder, 0)
    assert first.read() == "ready"
    third = Device(network, folder, insider, at=3, config_changes=LAWLESS)
    assert third.read() == "ready"
    number = 16**8 - 1 if insider is None else insider
    assert third("open_sessions", SESSIONS, number, *endpoints(0)) >= SESSIONS
    assert becomes_true(
        lambda: ["too many sessions", 4 if insider is None else 3] in first("notices")
    )
    second = Device(network, folder, 1, connect=endpoints(0))
    assert second.read() == "ready"
    assert second.sees(0)
    assert becomes_true(lambda: 1 in first("neighbours"))
    second("send", 0, MODEL, 3)
    assert first("receive", DEADLINE) == [1, MODEL, 3, True]
    for device in (second, third, first):
        device.leave(kill=True)


def test_a_session_in_the_id_of_another_device_is_ended(
    network: VirtualNetwork, folder: Path
) -> None:
    """Device 3 learns the id of device 1, and dials device 0 in it, before and after 1 does."""
    first = Device(network, folder, 0)
    second = Device(network, folder, 1, connect=endpoints(0))
    assert [first.read(), second.read()] == ["ready"] * 2
    assert first.sees(1)
    taken = second("zid")
    changes = {**LAWLESS, "id": taken}
    third = Device(network, folder, 3, connect=endpoints(0), config_changes=changes)
    assert third.read() == "ready"
    network.link(0, 1, up=False)  # now the id is free for device 3
    assert first.sees()
    assert becomes_true(lambda: ["taken session id", 3] in first("notices"))
    network.link(0, 1, up=True)
    assert first.sees(1)
    assert second.sees(0)
    second("send", 0, MODEL, 3)
    assert first("receive", DEADLINE) == [1, MODEL, 3, True]
    for device in (second, third, first):
        device.leave(kill=True)


def test_two_devices_with_one_certificate_are_named(network: VirtualNetwork, folder: Path) -> None:
    """Both run from a copy of one card: who sees both says so; one alone is not named."""
    first = Device(network, folder, 0)
    second = Device(network, folder, 1, connect=endpoints(0))
    assert [first.read(), second.read()] == ["ready"] * 2
    assert first.sees(1)
    assert ["twin", 1] not in first("notices")
    twin = Device(network, folder, 1, at=3, connect=endpoints(0))
    assert twin.read() == "ready"
    assert becomes_true(lambda: ["twin", 1] in first("notices"))
    for device in (second, twin, first):
        device.leave(kill=True)
