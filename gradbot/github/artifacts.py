"""Reports out of workflow artifacts: fetched with bounds, opened in memory, one named member read.

An archive may have been made by anybody's code. Nothing is written to disk, no other member is looked into, and every
size is bounded before it is believed.
"""

from __future__ import annotations

import io
import re
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from gradbot.github.client import Artifact, Client, RequestError

if TYPE_CHECKING:
    from requests import PreparedRequest, Response

MEMBER = "report.json"
_REDIRECTS = (301, 302, 303, 307, 308)
_HOPS = 4
_MESSAGE_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveCaps:
    """Bounds on an archive: its bytes, its members, the bytes of the report and how far that may be packed."""

    packed: int = 64 << 20
    members: int = 64
    unpacked: int = 256 << 20
    ratio: int = 200


class BadArtifactError(ValueError):
    """An artifact that cannot be used, with the reason in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactName:
    """What the name of a report's artifact says: `PREFIX.COMMENT-ID.SHARD.ATTEMPT`, the shard as `1-of-8`."""

    prefix: str
    comment_id: str
    shard: str
    attempt: int

    def __str__(self) -> str:
        return f"{self.prefix}.{self.comment_id}.{self.shard.replace('/', '-of-')}.{self.attempt}"


def parse_name(name: str, prefix: str, comment_id: str) -> ArtifactName | None:
    """What an artifact's name says, if it is one of ours."""
    match = re.fullmatch(
        rf"{re.escape(prefix)}\.{re.escape(comment_id)}\.([A-Za-z0-9_-]{{1,60}})\.([0-9]{{1,6}})", name
    )
    if match is None:
        return None
    shard = match[1].replace("-of-", "/")
    return ArtifactName(prefix=prefix, comment_id=comment_id, shard=shard, attempt=int(match[2]))


def download(client: Client, artifact: Artifact, caps: ArchiveCaps) -> bytes:
    """The bytes of an artifact's archive. Raises `RequestError`, or `BadArtifactError` where it is too large."""
    if artifact.size > caps.packed:
        raise BadArtifactError(f"{artifact.name}: {artifact.size} bytes, more than {caps.packed}")
    timing, last = client.timing, None
    for attempt in range(timing.tries):
        try:
            return _download_once(client, artifact, caps)
        except RequestError as error:
            if error.wait is None:
                raise
            last = error
            if attempt + 1 < timing.tries:
                time.sleep(error.wait)
    assert last is not None
    raise last


def _download_once(client: Client, artifact: Artifact, caps: ArchiveCaps) -> bytes:
    """Follow the redirect by hand: the token belongs to the API's host and to no other."""
    import requests

    context, timing = client.context, client.timing
    url = artifact.url
    api = urlsplit(context.api_url)
    try:
        for _ in range(_HOPS):
            target = urlsplit(url)
            if target.scheme != api.scheme and target.scheme != "https":
                raise RequestError(f"{artifact.name}: a redirect to {target.scheme}://{target.netloc} is not followed")
            ours = (target.scheme, target.netloc) == (api.scheme, api.netloc)
            with requests.get(
                url,
                headers={"User-Agent": "gradbot", "Accept": "*/*", "Accept-Encoding": "identity"},
                auth=_authorization(context.token if ours else ""),
                timeout=timing.request,
                allow_redirects=False,
                stream=True,
                verify=context.ca_bundle or None,
            ) as answer:
                if answer.status_code in _REDIRECTS:
                    url = urljoin(url, answer.headers.get("Location", ""))
                elif answer.status_code == requests.codes.ok:
                    return _bounded(answer.iter_content(1 << 16), artifact, caps)
                else:
                    raise client.failure(f"GET {target.path}", answer.status_code, answer.headers, _message(answer))
        raise RequestError(f"{artifact.name}: more than {_HOPS} redirects")
    except requests.RequestException as error:
        raise RequestError(f"{artifact.name}: {type(error).__name__}", wait=timing.backoff) from None


def _message(answer: Response) -> str:
    """The beginning of what an answer says, enough to tell one refusal from another."""
    return answer.raw.read(_MESSAGE_BYTES, decode_content=True).decode("utf-8", "replace") or answer.reason


def _authorization(token: str) -> Callable[[PreparedRequest], PreparedRequest]:
    """Sends the token, or nothing; without an `auth` of ours `requests` would look for one in a netrc file."""

    def authorize(request: PreparedRequest) -> PreparedRequest:
        request.headers.pop("Authorization", None)
        if token:
            request.headers["Authorization"] = f"Bearer {token}"
        return request

    return authorize


def _bounded(chunks: Iterable[bytes], artifact: Artifact, caps: ArchiveCaps) -> bytes:
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > caps.packed:
            raise BadArtifactError(f"{artifact.name}: more than {caps.packed} bytes")
    return bytes(data)


def read_member(archive: bytes, caps: ArchiveCaps, member: str = MEMBER) -> bytes:
    """The bytes of the one member named `member`. Raises `BadArtifactError`."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            infos = opened.infolist()
            if len(infos) > caps.members:
                raise BadArtifactError(f"the archive has {len(infos)} members, more than {caps.members}")
            return _read(opened, _only(infos, member), caps)
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, BadArtifactError):
            raise
        raise BadArtifactError(f"not an archive that can be read: {type(error).__name__}") from None


def _only(infos: list[zipfile.ZipInfo], member: str) -> zipfile.ZipInfo:
    named = [each for each in infos if each.filename == member]
    if len(named) != 1:
        raise BadArtifactError(f"the archive holds {len(named)} members named {member}; expected one")
    kind = stat.S_IFMT(named[0].external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise BadArtifactError(f"{member} is not a plain file")
    if named[0].flag_bits & 0x1:
        raise BadArtifactError(f"{member} is encrypted")
    return named[0]


def _read(opened: zipfile.ZipFile, info: zipfile.ZipInfo, caps: ArchiveCaps) -> bytes:
    most = min(caps.unpacked, max(1 << 20, info.compress_size * caps.ratio))
    with opened.open(info) as stream:
        data = stream.read(most + 1)
    if len(data) > most:
        raise BadArtifactError(f"{info.filename} unpacks to more than {most} bytes")
    return data
