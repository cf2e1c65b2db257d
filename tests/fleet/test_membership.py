"""Devices are added, removed, renewed and revoked while the others run."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.command import assert_refused, files, gossamer
from support.fleet_commands import DEVICES, DEVICES_RUN, PORTS, init
from support.loopback import python

from gossamer.errors import DataError
from gossamer.fleet import keys, pem
from gossamer.fleet.members import read_members
from gossamer.fleet.membership import FleetFolder
from gossamer.fleet.settings import read_device

pytest.importorskip("zenoh", reason="needs the extra gossamer[peer]")

pytestmark = pytest.mark.usefixtures("fleet_spec")

LONG = ("--set", "rounds=4000", "--set", "fleet.slot=1", "--set", "measure.every=1000")
HOSTS = ("--hosts", ",".join(PORTS))
FOURTH = f"127.0.0.1:{7001 + DEVICES}"

# The beginning of the script: what the last line of a device's log has.
LAST = """
import json, shutil, ssl
def last(folder):
    lines = Path(folder, "log.jsonl").read_text().splitlines()
    return json.loads(lines[-1])
def meets(folder, others):
    return Path(folder, "log.jsonl").exists() and set(last(folder)["met"]) == set(others)
def gossamer(*words):
    done = command(*words)
    assert done[0] == 0, done
    return done[1]
def serial(port):
    return ssl.get_server_certificate(("127.0.0.1", port))
"""


@pytest.mark.slow
@pytest.mark.fleet
def test_members_change_while_devices_run() -> None:
    """One device is renewed, one is stolen and revoked, one is added with a key of its own."""
    init(*HOSTS, *LONG, ahead=10)
    code = """
shutil.move("fleet/n2", "stolen/n2")
for name in ("n2.toml", "study.toml"):
    shutil.copy(f"fleet/{name}", "stolen")
def stolen():
    return subprocess.Popen([*WORDS, "node", "stolen/n2.toml", "-q"])
nodes = [node(0), node(1), stolen()]
until(lambda: meets("fleet/n0", [1, 2]) and meets("stolen/n2", [0, 1]))

key = Path("fleet/n0/device.key").read_bytes()
before = serial(7001)
renewed = gossamer("fleet", "renew", "fleet", "n0", "n1", "--days", "30")
until(lambda: "were read again" in Path("fleet/n0.err").read_text())
after = serial(7001)
until(lambda: meets("fleet/n0", [1, 2]))
same_key = Path("fleet/n0/device.key").read_bytes() == key

revoked = gossamer("fleet", "revoke", "fleet", "n2")
until(lambda: meets("fleet/n0", [1]) and meets("fleet/n1", [0]))
at = last("fleet/n0")["round"]
nodes[2].terminate()
nodes[2].wait()
nodes[2] = stolen()  # it tries again, and its certificate is still valid
until(lambda: last("stolen/n2")["round"] > at + 4)
alone = last("stolen/n2")

asked = gossamer("fleet", "request", "robot/n3")
added = gossamer("fleet", "add", "fleet", "--request", "robot/n3/device.csr",
                 "--host", given["fourth"])
shutil.copy("fleet/n0/data.safetensors", "robot/n3")
for name in ("study.toml", "members.json", "n3.toml", "n3/device.pem", "n3/ca.pem"):
    shutil.copy(f"fleet/{name}", f"robot/{name}")
nodes.append(subprocess.Popen([*WORDS, "node", "robot/n3.toml", "-q"]))
until(lambda: meets("fleet/n0", [1, 3]) and meets("robot/n3", [0, 1]))
seen = json.loads(gossamer("fleet", "status", "fleet", "--json", "--connect", given["connect"]))

removed = gossamer("fleet", "remove", "fleet", "n3")
until(lambda: meets("fleet/n0", [1]))
for process in (nodes[0], nodes[1], nodes[3]):
    process.terminate()
ends = [process.wait() for process in (nodes[0], nodes[1], nodes[3])]
nodes[2].kill()
log = [json.loads(line) for line in Path("fleet/n0/log.jsonl").read_text().splitlines()]
result = {
    "renewed": renewed, "new": after != before, "same_key": same_key,
    "revoked": revoked, "alone": alone,
    "asked": asked, "added": added, "seen": seen, "removed": removed, "ends": ends,
    "after": [line["near"] for line in log if line["round"] > at],
}
"""
    Path("stolen").mkdir()
    connect = ",".join([*PORTS[:2], FOURTH])
    result: Any = python(DEVICES_RUN + LAST + code, Path.cwd(), fourth=FOURTH, connect=connect)
    assert "n0, n1" in result["renewed"]
    assert result["same_key"]
    assert result["new"]
    assert "revoked for ever: n2; 2 devices are left" in result["revoked"]
    assert result["alone"]["near"] == []
    assert not any(2 in near for near in result["after"])
    assert not list(Path("fleet").rglob("n3/device.key"))  # it never left the device
    assert "copy it to the machine with the authority" in result["asked"]
    assert "study.toml, members.json, n3.toml, n3/" in result["added"]
    rows = {row["name"]: row for row in result["seen"]["devices"]}
    assert sorted(rows) == ["n0", "n1", "n3"]
    assert rows["n3"]["doing"] == "running"
    assert "no longer belongs to the fleet: n3" in result["removed"]
    assert result["ends"] == [0, 0, 0]
    said = Path("fleet/n0.err").read_text()
    assert said.count("certificates and members were read again") >= 3
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.fleet
def test_a_change_that_cannot_be_used_leaves_the_links_as_they_are() -> None:
    init(*HOSTS, *LONG, ahead=10)
    code = """
nodes = [node(0), node(1)]
until(lambda: meets("fleet/n0", [1]))
good = Path("fleet/n0/device.pem").read_bytes()
Path("fleet/n0/device.pem").write_bytes(b"torn")
until(lambda: "is not a certificate" in Path("fleet/n0.err").read_text())
Path("fleet/members.json").write_text('{"members": {"run": "no"}}')
until(lambda: "is not a list of members" in Path("fleet/n1.err").read_text())
at = last("fleet/n0")["round"]
until(lambda: last("fleet/n0")["round"] > at + 2 and meets("fleet/n0", [1]))
Path("fleet/members.json").unlink()
Path("fleet/n0/device.pem").write_bytes(good)
until(lambda: "were read again" in Path("fleet/n0.err").read_text())
until(lambda: meets("fleet/n0", [1]))
for process in nodes:
    process.terminate()
result = [process.wait() for process in nodes]
"""
    assert python(DEVICES_RUN + LAST + code, Path.cwd()) == [0, 0]


def test_keys_are_made_on_the_devices() -> None:
    output = init("--no-keys", *HOSTS)
    assert "gossamer fleet request n0" in output
    assert not list(Path("fleet").glob("n*/*.key"))
    Path("robot").mkdir()
    shutil.copytree("fleet/n1", "robot/n1")
    assert gossamer("fleet", "request", "robot/n1").code == 0
    again = Path("robot/n1/device.key").read_bytes()
    assert gossamer("fleet", "request", "robot/n1").code == 0
    assert Path("robot/n1/device.key").read_bytes() == again  # a key is never replaced
    words = ("fleet", "renew", "fleet", "n1", "--request", "robot/n1/device.csr")
    assert gossamer(*words).code == 0
    for name in (keys.CERTIFICATE, keys.AUTHORITY_CERTIFICATE):
        shutil.copy(f"fleet/n1/{name}", f"robot/n1/{name}")
    assert keys.check_folder(Path("robot/n1"), "n1") is None
    assert not Path("fleet/n1/device.key").exists()
    # The name in a request is not believed.
    Path("robot/n1").rename("robot/n2")
    assert gossamer("fleet", "request", "robot/n2").code == 0
    words = ("fleet", "renew", "fleet", "n0", "--request", "robot/n2/device.csr")
    assert gossamer(*words).code == 0
    shutil.copy("robot/n2/device.key", "fleet/n0/device.key")
    assert keys.check_folder(Path("fleet/n0"), "n0") is None


def test_the_key_of_the_authority_is_encrypted() -> None:
    Path("secret").write_text("correct horse\n")
    init(*HOSTS, "--passphrase-file", "secret")
    assert b"ENCRYPTED" in Path("fleet/authority/ca.key").read_bytes()
    for command in (("renew", "fleet"), ("revoke", "fleet", "n1"), ("remove", "fleet", "n1")):
        before = files()
        assert_refused(gossamer("fleet", *command), "ca.key is encrypted", "--passphrase-file")
        assert files() == before
    Path("wrong").write_text("battery staple\n")
    refused = gossamer("fleet", "renew", "fleet", "--passphrase-file", "wrong")
    assert_refused(refused, "cannot be decrypted: the passphrase is wrong")
    done = gossamer("fleet", "revoke", "fleet", "n1", "--passphrase-file", "secret")
    assert done.code == 0, done.err
    assert FleetFolder(Path("fleet")).members().revoked == ("n1",)
    Path("empty").write_text("\n")
    refused = gossamer("fleet", "renew", "fleet", "--passphrase-file", "empty")
    assert_refused(refused, "empty is empty")


def test_a_list_of_members_is_signed_and_of_this_fleet() -> None:
    init(*HOSTS)
    init(*HOSTS, out="other")
    for folder in ("fleet", "other"):
        assert gossamer("fleet", "remove", folder, "n2").code == 0
    path = Path("fleet/members.json")
    device = read_device(Path("fleet/n0.toml"))
    good = path.read_text()
    assert read_members(device).removed == ("n2",)
    content = json.loads(good)
    content["members"]["removed"] = []
    path.write_text(json.dumps(content))
    with pytest.raises(DataError, match="is not signed by the authority"):
        read_members(device)
    path.write_text(Path("other/members.json").read_text())
    with pytest.raises(DataError, match="is of another fleet"):
        read_members(device)
    for torn in (good[:40], "", "[]", good.replace("n1", "N1")):
        path.write_text(torn)
        with pytest.raises(DataError, match="is not a list of members"):
            read_members(device)
    path.write_text(good)
    refused = gossamer("node", "fleet/n2.toml")
    assert_refused(refused, "n2 was removed from this fleet")
    assert gossamer("fleet", "remove", "fleet", "n2", "--back").code == 0
    assert read_members(device).refused == frozenset()


WRONG: dict[str, tuple[tuple[object, ...], tuple[str, ...]]] = {
    "unknown": (("revoke", "fleet", "n7"), ("name = 'n7'", "one of n0, n1, n2")),
    "no folder": (("revoke", "nowhere", "n1"), ("nowhere has no fleet",)),
    "renew unknown": (("renew", "fleet", "n7"), ("name = 'n7'",)),
    "renew removed": (("renew", "fleet", "n2"), ("name = 'n2'", "neither removed nor revoked")),
    "back": (("remove", "fleet", "n0", "--back"), ("name = 'n0'", "that was removed")),
    "two requests": (
        ("renew", "fleet", "n0", "n1", "--request", "none.csr"),
        ("one name with --request",),
    ),
    "no request": (("renew", "fleet", "n0", "--request", "none.csr"), ("none.csr is missing",)),
    "bad request": (
        ("renew", "fleet", "n0", "--request", "fleet.toml"),
        ("fleet.toml is not a certificate request",),
    ),
    "days": (("renew", "fleet", "--days", 9999), ("days = 9999", "fewer")),
    "no host": (("add", "fleet"), ("--host = None", "host:port of the new device")),
    "taken": (("add", "fleet", "--host", PORTS[0]), ("--host", "no other device")),
    "passphrase": (
        ("renew", "fleet", "--passphrase-file", "none"),
        ("cannot read none",),
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_change_is_refused_and_changes_nothing(wrong: str) -> None:
    init(*HOSTS)
    assert gossamer("fleet", "revoke", "fleet", "n2").code == 0
    words, parts = WRONG[wrong]
    before = files()
    assert_refused(gossamer("fleet", *words), *parts)
    assert files() == before


def test_a_fleet_with_a_schedule_takes_no_new_device() -> None:
    init("--set", "network.kind=one-peer-exponential", "--set", "fleet.insecure=true")
    assert_refused(gossamer("fleet", "add", "fleet"), "one-peer-exponential", "without a schedule")


def test_a_fleet_without_certificates_has_members_too() -> None:
    init("--set", "fleet.insecure=true")
    assert gossamer("fleet", "add", "fleet").code == 0
    assert gossamer("fleet", "revoke", "fleet", "n1").code == 0
    assert read_device(Path("fleet/n3.toml")).names == ("n0", "n1", "n2", "n3")
    members = read_members(read_device(Path("fleet/n0.toml")))
    assert members.names[-1] == "n3"
    assert (members.revoked, members.version) == (("n1",), 2)
    assert_refused(gossamer("fleet", "renew", "fleet"), "fleet.insecure", "no certificates")


def test_a_certificate_is_renewed_without_the_key(tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=300)
    authority = tmp_path / "authority"
    keys.make_authority(authority, "fleet", days=3650, now=long_ago)
    folder = tmp_path / "n3"
    keys.make_certificate(folder, authority, "n3", 30, ["10.0.0.3"], now=long_ago)
    assert "expired" in str(keys.check_folder(folder))
    key = (folder / keys.KEY).rename(tmp_path / "kept")
    before = pem.read_certificate(folder / keys.CERTIFICATE)
    keys.renew_certificate(folder, authority, "n3", days=30)
    after = pem.read_certificate(folder / keys.CERTIFICATE)
    assert after.public_key() == before.public_key()
    assert after.serial_number != before.serial_number
    assert abs(keys.expiry(folder) - datetime.now(UTC) - timedelta(days=30)) < timedelta(hours=1)
    key.rename(folder / keys.KEY)
    assert keys.check_folder(folder, "n3") is None
    with pytest.raises(DataError, match="is for 'n3', not for 'n4'"):
        keys.renew_certificate(folder, authority, "n4", days=30)
    other = tmp_path / "other"
    keys.make_authority(other, "fleet", days=3650)
    with pytest.raises(DataError, match="of another authority"):
        keys.renew_certificate(folder, other, "n3", days=30)
