"""A GitHub server of one's own: other addresses, and certificates that nobody else trusts."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fake_github.scenes import context, report, state, tools, upload
from fake_github.server import Fake, running

from gradbot.github.gather import Gathered
from gradbot.github.publish import Settings, publish


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine that signs itself, with its key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake")])
    now = datetime.datetime.now(datetime.timezone.utc)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def fake(certificate: Path) -> Iterator[Fake]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with running(state(), enterprise=True, tls=tls) as served:
        upload(served.state, 812, report(wrong=["b"]))
        yield served


def test_a_certificate_of_one_s_own_is_trusted_where_it_is_named(fake: Fake, certificate: Path) -> None:
    job, printed = context(fake, ca_bundle=str(certificate)), []
    publish(Settings(), job, Gathered(), tools(fake, job, printed))
    (comment,) = fake.state.of_bot(7)
    assert "unclassified b" in comment.body


def test_a_certificate_that_nobody_named_is_not_trusted(fake: Fake) -> None:
    job, printed = context(fake), []
    publish(Settings(), job, Gathered(), tools(fake, job, printed))
    assert fake.state.comments == {}
    assert any(line.startswith("::warning") and "SSLError" in line for line in printed)
