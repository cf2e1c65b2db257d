"""Which handshakes may begin, for any order of arrivals, failures and successes."""

from __future__ import annotations

import random

import pytest

from gossamer.fleet.transport.admission import PENDING_PER_ADDRESS, Admission

STRANGERS = [f"10.0.1.{i}" for i in range(200)]


def test_failures_of_all_strangers_together_are_limited() -> None:
    """Two hundred addresses try at once, and every handshake fails after a while."""
    admission = Admission()
    chosen = random.Random(1)
    failures = 0
    now = 0.0
    begun = []
    while now < 60:
        now += 0.01
        handshake = admission.begin(chosen.choice(STRANGERS), now)
        if handshake is not None:
            begun.append(handshake)
        if begun and chosen.random() < 0.2:
            admission.fail(begun.pop(0), now)
            failures += 1
    assert 100 < failures < 60 * 3 + 15


def test_a_device_that_has_linked_does_not_wait_for_strangers() -> None:
    admission = Admission(known=("10.0.0.1",))
    handshake = admission.begin("10.0.0.2", 0.0)
    assert handshake is not None
    admission.succeed(handshake)
    while (stranger := admission.begin(random.choice(STRANGERS), 0.0)) is not None:
        admission.fail(stranger, 0.0)
    for host in ("10.0.0.1", "10.0.0.2"):
        assert admission.begin(host, 0.0) is not None, host


def test_an_address_pauses_longer_after_each_failure_and_not_after_a_success() -> None:
    admission = Admission(known=("10.0.0.1",))
    now = 0.0
    waits = []
    for _ in range(8):
        handshake = None
        begin = now
        while handshake is None:
            now += 0.01
            handshake = admission.begin("10.0.0.1", now)
        waits.append(now - begin)
        admission.fail(handshake, now)
    assert waits == pytest.approx([0.01, 0.5, 1, 2, 4, 8, 8, 8], abs=0.02)
    now += 8.1
    handshake = admission.begin("10.0.0.1", now)
    assert handshake is not None
    admission.succeed(handshake)
    assert admission.begin("10.0.0.1", now) is not None


@pytest.mark.parametrize("host", ["10.0.0.7", "fe80::1%eth0", "2001:db8::1"])
def test_handshakes_of_an_address_at_a_time_are_limited(host: str) -> None:
    admission = Admission()
    for _ in range(PENDING_PER_ADDRESS):
        assert admission.begin(host, 0.0) is not None
    assert admission.begin(host, 0.0) is None


def test_a_machine_does_not_gain_by_many_addresses_of_its_ipv6_network() -> None:
    admission = Admission()
    begun = [admission.begin(f"2001:db8::{i:x}", 0.0) for i in range(1, 50)]
    assert sum(one is not None for one in begun) == PENDING_PER_ADDRESS


def test_addresses_that_are_remembered_are_bounded() -> None:
    admission = Admission(known=("10.0.0.1",))
    for i in range(10_000):
        handshake = admission.begin(f"172.16.{i // 250}.{i % 250}", float(i))
        if handshake is not None:
            admission.fail(handshake, float(i))
    assert len(admission._addresses) <= 4096
    assert admission.begin("10.0.0.1", 1e4) is not None
