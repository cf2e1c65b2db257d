"""The certificates of a fleet: who is accepted, and what is reported about an invalid folder."""

from __future__ import annotations

import os
import shutil
import ssl
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import DataError, InputError, MissingExtra
from gossamer.fleet.keys import check_folder, make_authority, make_certificate

pytest.importorskip("cryptography", reason="the extra gossamer[peer] is not installed")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

NOW = datetime.now(UTC)
LAST_YEAR = NOW - timedelta(days=365)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority with devices n3 and n4, an expired device, and another authority with an n3."""
    folder = tmp_path_factory.mktemp("fleet")
    make_authority(folder / "authority", "fleet", days=3650, now=LAST_YEAR)
    make_certificate(
        folder / "n3",
        folder / "authority",
        "n3",
        days=30,
        addresses=["10.0.0.3", "fd00::3", "robot-3.local"],
    )
    make_certificate(folder / "n4", folder / "authority", "n4", days=30)
    make_certificate(folder / "old", folder / "authority", "old", days=30, now=LAST_YEAR)
    make_authority(folder / "another", "fleet", days=3650, now=LAST_YEAR)
    make_certificate(folder / "foreign", folder / "another", "n3", days=30)
    return folder


@pytest.fixture
def n3(fleet: Path, tmp_path: Path) -> Path:
    """A copy of a device's folder, to be damaged."""
    return Path(shutil.copytree(fleet / "n3", tmp_path / "n3"))


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def context(
    device: Path, server: bool, authority: Path | None = None, shows: bool = True
) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    made.load_verify_locations((authority or device) / "ca.pem")
    if shows:
        made.load_cert_chain(device / "device.pem", device / "device.key")
    return made


def connect(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Do a TLS handshake in memory and send a byte each way; return the server's end.

    The end that refuses raises.
    """
    upward = ssl.MemoryBIO()
    downward = ssl.MemoryBIO()
    client_end = client.wrap_bio(downward, upward, server_hostname=host)
    server_end = server.wrap_bio(upward, downward, server_side=True)
    waiting: list[Callable[[], object]] = [client_end.do_handshake, server_end.do_handshake]
    for _ in range(10):
        for step in list(waiting):
            with suppress(ssl.SSLWantReadError):
                step()
                waiting.remove(step)
    assert not waiting
    for sender, receiver in ((client_end, server_end), (server_end, client_end)):
        sender.write(b"!")
        assert receiver.read(1) == b"!"
    return server_end


def test_two_devices_of_a_fleet_trust_each_other(fleet: Path) -> None:
    n3 = fleet / "n3"
    n4 = fleet / "n4"
    for host in ("n3", "10.0.0.3", "fd00::3", "robot-3.local"):
        peer = connect(context(n4, server=False), context(n3, server=True), host).getpeercert()
        assert peer is not None
        assert peer["subject"] == ((("commonName", "n4"),),)
    connect(context(n3, server=False), context(n4, server=True), "n4")  # either may dial


@pytest.mark.parametrize("host", ["n4", "n33", "10.0.0.4", "robot-3"])
def test_a_certificate_is_for_its_own_name_only(fleet: Path, host: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        connect(context(fleet / "n4", server=False), context(fleet / "n3", server=True), host)


@pytest.mark.parametrize(
    ("who", "why"),
    [("foreign", "certificate signature failure|unable to get|self.signed"), ("old", "expired")],
)
def test_foreign_and_expired_certificates_are_refused_by_either_end(
    fleet: Path, who: str, why: str
) -> None:
    ours = fleet / "authority"  # the authority that they claim
    with pytest.raises(ssl.SSLCertVerificationError, match=why):
        connect(context(fleet / who, False, ours), context(fleet / "n3", True), "n3")
    with pytest.raises(ssl.SSLCertVerificationError, match=why):
        connect(
            context(fleet / "n4", False),
            context(fleet / who, True, ours),
            "old" if who == "old" else "n3",
        )


def test_a_foreign_device_does_not_trust_ours(fleet: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(context(fleet / "foreign", server=False), context(fleet / "n3", server=True), "n3")


def test_a_peer_without_a_certificate_is_refused(fleet: Path) -> None:
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        connect(context(fleet / "n4", False, shows=False), context(fleet / "n3", True), "n3")


def test_a_device_cannot_sign_certificates(fleet: Path, tmp_path: Path) -> None:
    """A certificate signed with the key of a device, whose own certificate follows in the chain."""
    signer = certificate(fleet / "n3" / "device.pem")
    signer_key = serialization.load_pem_private_key(
        (fleet / "n3" / "device.key").read_bytes(), None
    )
    assert isinstance(signer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    honest = certificate(fleet / "n4" / "device.pem")
    builder = x509.CertificateBuilder(
        signer.subject, honest.subject, key.public_key(), 1, LAST_YEAR, NOW + timedelta(days=9)
    )
    builder = builder.add_extension(
        x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
    )
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    for extension in honest.extensions:
        if not isinstance(extension.value, x509.AuthorityKeyIdentifier | x509.SubjectKeyIdentifier):
            builder = builder.add_extension(extension.value, extension.critical)
    forged = builder.sign(signer_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (tmp_path / "device.pem").write_bytes(forged.public_bytes(pem) + signer.public_bytes(pem))
    (tmp_path / "device.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with pytest.raises(ssl.SSLCertVerificationError, match=r"invalid CA|path length"):
        connect(context(tmp_path, False, fleet / "authority"), context(fleet / "n3", True), "n3")

    for ours, theirs in (("ca.pem", "device.pem"), ("ca.key", "device.key")):
        shutil.copy(fleet / "n3" / theirs, tmp_path / ours)
    with pytest.raises(DataError, match=r"ca\.pem is not the certificate of an authority"):
        make_certificate(tmp_path / "n5", tmp_path, "n5", days=1)


def test_another_verifier_agrees(fleet: Path) -> None:
    policy = PolicyBuilder().store(Store([certificate(fleet / "authority" / "ca.pem")])).time(NOW)
    good = certificate(fleet / "n3" / "device.pem")
    policy.build_server_verifier(x509.DNSName("n3")).verify(good, [])
    subjects = policy.build_client_verifier().verify(good, []).subjects
    assert subjects is not None
    assert x509.DNSName("n3") in subjects
    for name in ("old", "foreign"):
        with pytest.raises(VerificationError):
            policy.build_client_verifier().verify(certificate(fleet / name / "device.pem"), [])
    with pytest.raises(VerificationError):
        policy.build_server_verifier(x509.DNSName("n4")).verify(good, [])


def test_fields_of_a_certificate(fleet: Path) -> None:
    authority = certificate(fleet / "authority" / "ca.pem")
    device = certificate(fleet / "n3" / "device.pem")
    for one in (authority, device):
        assert isinstance(key := one.public_key(), ec.EllipticCurvePublicKey)
        assert isinstance(key.curve, ec.SECP256R1)
    limits = authority.extensions.get_extension_for_class(x509.BasicConstraints)
    assert limits.critical
    assert (limits.value.ca, limits.value.path_length) == (True, 0)
    assert not device.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    uses = device.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH}
    names = device.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["n3", "robot-3.local"]
    assert [str(x) for x in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.3", "fd00::3"]
    assert timedelta(days=29) < device.not_valid_after_utc - NOW < timedelta(days=31)
    assert (fleet / "n3" / "ca.pem").read_bytes() == (fleet / "authority" / "ca.pem").read_bytes()
    assert sorted(file.name for file in (fleet / "n3").iterdir()) == [
        "ca.pem",
        "device.key",
        "device.pem",
    ]


def test_a_certificate_does_not_outlive_its_authority(tmp_path: Path) -> None:
    make_authority(tmp_path, "fleet", days=10, now=NOW)
    soon = NOW + timedelta(minutes=5)  # a fleet takes some time to make
    make_certificate(tmp_path / "n1", tmp_path, "n1", days=10, now=soon)
    assert (
        certificate(tmp_path / "n1" / "device.pem").not_valid_after_utc
        == certificate(tmp_path / "ca.pem").not_valid_after_utc
    )
    with pytest.raises(InputError, match="days = 12 is not accepted: give fewer"):
        make_certificate(tmp_path / "n2", tmp_path, "n2", days=12, now=NOW)
    with pytest.raises(DataError, match="expired on"):
        make_certificate(tmp_path / "n2", tmp_path, "n2", days=0.1, now=NOW + timedelta(days=10.5))


def test_a_key_is_never_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an empty umask, checked while the file exists and is still empty."""
    modes: list[int] = []

    def watched(
        file: Any, flags: int, mode: int = 0o777, *, open: Callable[..., int] = os.open
    ) -> int:
        opened = open(file, flags, mode)
        if ".key" in str(file) and flags & os.O_CREAT:
            assert flags & os.O_EXCL
            modes.append(stat.S_IMODE(os.fstat(opened).st_mode))
        return opened

    (tmp_path / "n1").mkdir()
    older = tmp_path / "n1" / "device.key"  # readable by all, and open in another process
    older.touch()
    older.chmod(0o666)
    monkeypatch.setattr(os, "open", watched)
    mask = os.umask(0)
    try:
        make_authority(tmp_path / "authority", "fleet", days=30)
        with older.open("rb") as opened:
            make_certificate(tmp_path / "n1", tmp_path / "authority", "n1", days=3)
            assert opened.read() == b""
    finally:
        os.umask(mask)
    assert modes == [0o600, 0o600]
    for file in (tmp_path / "authority" / "ca.key", tmp_path / "n1" / "device.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "authority").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "n1" / "device.pem").stat().st_mode) == 0o644
    assert check_folder(tmp_path / "n1") is None


def test_an_authority_is_not_replaced_and_a_device_is_renewed(tmp_path: Path) -> None:
    make_authority(tmp_path / "authority", "fleet", days=30)
    before = (tmp_path / "authority" / "ca.key").read_bytes()
    with pytest.raises(DataError, match=r"ca\.pem exists"):
        make_authority(tmp_path / "authority", "fleet", days=30)
    assert (tmp_path / "authority" / "ca.key").read_bytes() == before
    keys = set()
    for _ in range(2):
        make_certificate(tmp_path / "n1", tmp_path / "authority", "n1", days=3)
        assert check_folder(tmp_path / "n1") is None
        keys.add((tmp_path / "n1" / "device.key").read_bytes())
    assert len(keys) == 2


def test_a_valid_folder_has_no_problem(fleet: Path) -> None:
    assert check_folder(fleet / "n3") is None
    assert check_folder(fleet / "n3", "n3") is None


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda n3, fleet: shutil.rmtree(n3), "ca.pem is missing"),
        (lambda n3, fleet: (n3 / "ca.pem").unlink(), "ca.pem is missing"),
        (lambda n3, fleet: (n3 / "device.pem").unlink(), "device.pem is missing"),
        (lambda n3, fleet: (n3 / "device.key").unlink(), "device.key is missing"),
        (
            lambda n3, fleet: (n3 / "device.pem").write_text("hello"),
            "device.pem is not a certificate in PEM form",
        ),
        (
            lambda n3, fleet: (n3 / "device.pem").write_bytes(bytes(1 << 17)),
            "has more than 65536 bytes",
        ),
        (
            lambda n3, fleet: (n3 / "device.key").write_text("hello"),
            "device.key is not an elliptic-curve key",
        ),
        (
            lambda n3, fleet: shutil.copyfile(n3 / "device.pem", n3 / "device.key"),
            "device.key is not an elliptic-curve key",
        ),
        (
            lambda n3, fleet: shutil.copy(n3 / "device.pem", n3 / "ca.pem"),
            "ca.pem is not the certificate of an authority",
        ),
        (
            lambda n3, fleet: shutil.copy(fleet / "foreign" / "ca.pem", n3),
            "device.pem is of another authority than",
        ),
        (
            lambda n3, fleet: shutil.copy(fleet / "foreign" / "device.pem", n3),
            "device.pem is of another authority than",
        ),
        (lambda n3, fleet: shutil.copy(fleet / "old" / "device.pem", n3), "device.pem expired on"),
        (
            lambda n3, fleet: shutil.copy(fleet / "n4" / "device.key", n3),
            "device.key is not the key of",
        ),
        (
            lambda n3, fleet: [
                shutil.copy(fleet / "n4" / x, n3) for x in ("device.key", "device.pem")
            ],
            "is for 'n4', not for 'n3'",
        ),
        (
            lambda n3, fleet: (n3 / "device.key").chmod(0o640),
            "device.key can be read by others: chmod 600 it",
        ),
        (
            lambda n3, fleet: (n3 / "device.key").chmod(0o604),
            "device.key can be read by others: chmod 600 it",
        ),
    ],
)
def test_every_problem_is_reported_in_one_sentence(
    fleet: Path, n3: Path, damage: Callable[[Path, Path], Any], sentence: str
) -> None:
    damage(n3, fleet)
    problem = check_folder(n3, "n3")
    assert problem is not None
    assert sentence in problem
    assert "\n" not in problem


def test_validity_in_time(fleet: Path) -> None:
    assert check_folder(fleet / "n3", now=NOW + timedelta(days=29)) is None
    assert "device.pem expired on" in str(check_folder(fleet / "n3", now=NOW + timedelta(days=31)))
    assert "ca.pem expired on" in str(check_folder(fleet / "n3", now=NOW + timedelta(days=4000)))
    a_little_behind = NOW - timedelta(hours=20)
    assert check_folder(fleet / "n3", now=a_little_behind) is None
    assert "the clock of this machine says 1970-01-01" in str(
        check_folder(fleet / "n3", now=datetime(1970, 1, 1, tzinfo=UTC))
    )


@pytest.mark.parametrize(
    "name", ["", "-n", "n-", "N3", "n3/**", "n*", "n 3", "n.3", "../n3", "n\n", "é", "n" * 64]
)
def test_names_with_special_characters_are_refused(fleet: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as refused:
        make_certificate(tmp_path / "device", fleet / "authority", name, days=1)
    assert refused.value.field == "device_name"
    assert not (tmp_path / "device").exists()


@pytest.mark.parametrize(
    "address",
    ["", "10.0.0.3:7447", "tcp/10.0.0.3", "*", "*.local", "Robot", "10.0.0.0/8", "a..b", "a" * 300],
)
def test_addresses_are_checked(fleet: Path, tmp_path: Path, address: str) -> None:
    with pytest.raises(InputError) as refused:
        make_certificate(
            tmp_path, fleet / "authority", "n1", days=1, addresses=["10.0.0.1", address]
        )
    assert refused.value.field == "addresses"


@pytest.mark.parametrize("days", [0, -1, float("nan"), float("inf")])
def test_days_are_checked(tmp_path: Path, days: float) -> None:
    with pytest.raises(InputError, match=r"^days = "):
        make_authority(tmp_path, "fleet", days=days)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["", "a" * 65, "a\nb"])
def test_an_authority_has_a_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"^name = "):
        make_authority(tmp_path, name, days=3)


def test_an_incomplete_authority_signs_nothing(fleet: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ca\.pem is missing"):
        make_certificate(tmp_path / "n1", tmp_path / "nowhere", "n1", days=1)
    damaged = Path(shutil.copytree(fleet / "authority", tmp_path / "authority"))
    shutil.copy(fleet / "another" / "ca.key", damaged)
    with pytest.raises(DataError, match=r"ca\.key is not the key of .*ca\.pem"):
        make_certificate(tmp_path / "n1", damaged, "n1", days=1)
    (damaged / "ca.key").chmod(0o644)
    with pytest.raises(DataError, match=r"ca\.key can be read by others"):
        make_certificate(tmp_path / "n1", damaged, "n1", days=1)
    assert not (tmp_path / "n1").exists()


def test_a_folder_that_cannot_be_written_is_reported(fleet: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"cannot write .*device\.key: Not a directory"):
        make_certificate(tmp_path / "file" / "n1", fleet / "authority", "n1", days=1)


def test_the_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    for ask in (
        lambda: make_authority(tmp_path, "fleet", days=1),
        lambda: make_certificate(tmp_path, tmp_path, "n1", days=1),
        lambda: check_folder(tmp_path),
    ):
        with pytest.raises(
            MissingExtra,
            match=r"the runtime for devices is not installed: pip install 'gossamer\[peer\]'",
        ):
            ask()
