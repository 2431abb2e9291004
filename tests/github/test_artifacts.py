"""Archives that others made: one named member, in memory, within bounds; and the token stays with the API's host."""

from __future__ import annotations

import contextlib
import io
import struct
import warnings
import zipfile
from collections.abc import Iterator

import pytest
from fake_github.scenes import FAST, context, state
from fake_github.server import Fake, running
from fake_github.state import BAD_GATEWAY, DEAD_LINE, SECONDARY, Fault

from gradbot.github.artifacts import ArchiveCaps, ArtifactName, BadArtifactError, download, parse_name, read_member
from gradbot.github.client import Client, RequestError

CAPS = ArchiveCaps(packed=1 << 20, members=8, unpacked=2 << 20)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(state()) as served:
        yield served


def client_of(fake: Fake, token: str = "good") -> Client:
    return Client(context(fake, token=token), FAST)


def archive(*members: tuple[str | zipfile.ZipInfo, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as opened:
        warnings.simplefilter("ignore")
        for name, content in members:
            opened.writestr(name, content)
    return buffer.getvalue()


def test_the_named_member_is_read() -> None:
    assert read_member(archive(("junit.xml", b"<x/>"), ("report.json", b"{}")), CAPS) == b"{}"


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("report.json")
    info.external_attr = 0o120777 << 16
    return info


def encrypted() -> bytes:
    data = bytearray(archive(("report.json", b"{}"), method=zipfile.ZIP_STORED))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(signature) + offset
        data[place : place + 2] = struct.pack("<H", 0x1)
    return bytes(data)


def overstated() -> bytes:
    """A member whose header claims another size than its data has."""
    data = bytearray(archive(("report.json", b"{}" * 1000)))
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = struct.pack("<I", 1 << 30)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (archive(("report.json", b"0" * (3 << 20))), "unpacks to more than"),
        (archive(("report.json", b"0" * (2 << 20))), "unpacks to more than"),  # packed 1,000 to 1
        (archive(*((f"{n}", b"") for n in range(9))), "9 members"),
        (archive(("other.json", b"{}")), "0 members named report.json"),
        (archive(("../report.json", b"{}")), "0 members named report.json"),
        (archive(("/report.json", b"{}")), "0 members named report.json"),
        (archive(("a/report.json", b"{}")), "0 members named report.json"),
        (archive(("report.json", b"{}"), ("report.json", b"[]")), "2 members named report.json"),
        (archive((link(), b"/etc/passwd")), "not a plain file"),
        (encrypted(), "encrypted"),
        (b"", "not an archive"),
        (b"PK\x03\x04 and no more", "not an archive"),
        (archive(("report.json", b"{}"))[:-10], "not an archive"),
        (archive(("report.json", bytes(range(256)) * 40))[:200] + b"x" * 300, "not an archive"),
    ],
)
def test_an_archive_that_is_not_as_ours_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(BadArtifactError, match=why):
        read_member(data, CAPS)


def test_a_size_that_the_header_makes_up_changes_nothing() -> None:
    with contextlib.suppress(BadArtifactError):  # refusing is as good as reading what is there
        assert read_member(overstated(), CAPS) == b"{}" * 1000


def test_damaged_data_is_refused() -> None:
    data = bytearray(archive(("report.json", b"some text that is long enough to be packed " * 20)))
    data[60] ^= 0xFF
    with pytest.raises(BadArtifactError, match="not an archive that can be read"):
        read_member(bytes(data), CAPS)


def test_a_download_follows_the_redirect_without_the_token(fake: Fake) -> None:
    fake.state.upload(812, "a", {"report.json": "{}"})
    client = client_of(fake)
    (artifact,) = client.artifacts(812)
    assert read_member(download(client, artifact, CAPS), CAPS) == b"{}"
    assert fake.blob_url.split(":")[1] != fake.api_url.split(":")[1]  # the other host has another name


@pytest.mark.parametrize(
    ("where", "fault"),
    [
        ("/zip", BAD_GATEWAY),
        ("/zip", DEAD_LINE),
        ("/zip", SECONDARY),
        ("blob", BAD_GATEWAY),
        ("blob", DEAD_LINE),
    ],
)
def test_a_download_rides_out_faults(fake: Fake, where: str, fault: Fault) -> None:
    fake.state.upload(812, "a", {"report.json": "{}"})
    client = client_of(fake)
    (artifact,) = client.artifacts(812)
    fake.state.faults.append(("GET", where, fault))
    assert read_member(download(client, artifact, CAPS), CAPS) == b"{}"
    assert fake.state.faults == []


def test_a_download_larger_than_it_said_is_cut_off(fake: Fake) -> None:
    made = fake.state.upload_raw(812, "a", b"x" * 100)
    client = client_of(fake)
    (artifact,) = client.artifacts(812)
    made.data = b"x" * (CAPS.packed + 1)
    with pytest.raises(BadArtifactError, match="more than"):
        download(client, artifact, CAPS)


def test_a_large_artifact_is_not_fetched_at_all(fake: Fake) -> None:
    fake.state.upload_raw(812, "a", b"x" * (CAPS.packed + 1))
    client = client_of(fake)
    (artifact,) = client.artifacts(812)
    with pytest.raises(BadArtifactError, match="more than"):
        download(client, artifact, CAPS)
    assert [path for _, path, _ in fake.state.requests if path.endswith("/zip")] == []


def test_expired_artifacts_are_not_listed_and_a_late_expiry_is_one_clear_error(fake: Fake) -> None:
    made = fake.state.upload(812, "a", {"report.json": "{}"})
    client = client_of(fake)
    (artifact,) = client.artifacts(812)
    made.expired = True
    assert client.artifacts(812) == ()
    with pytest.raises(RequestError, match="410"):
        download(client, artifact, CAPS)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"])
def test_a_redirect_to_anything_but_the_web_is_not_followed(fake: Fake, target: str) -> None:
    fake.state.upload(812, "a", {"report.json": "{}"})
    client = client_of(fake)
    (artifact,) = client.artifacts(812)
    fake.blob_url = target
    with pytest.raises(RequestError, match="not followed"):
        download(client, artifact, CAPS)


def test_a_name_reads_back_as_it_was_written() -> None:
    name = ArtifactName(prefix="gradbot-report", comment_id="core", shard="3/8", attempt=2)
    assert str(name) == "gradbot-report.core.3-of-8.2"
    assert parse_name(str(name), "gradbot-report", "core") == name


@pytest.mark.parametrize(
    "name",
    [
        "gradbot-report.core.3-of-8",
        "gradbot-report.core-2.3-of-8.1",
        "gradbot-report.core.3-of-8.1.1",
        "gradbot-report.core.../x.1",
        "xgradbot-report.core.3-of-8.1",
        "gradbot-report.core.3-of-8.-1",
        "gradbot-report.core.3-of-8.1\n",
    ],
)
def test_other_names_are_not_ours(name: str) -> None:
    assert parse_name(name, "gradbot-report", "core") is None
