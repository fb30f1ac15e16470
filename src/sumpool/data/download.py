"""Fetch a file: progress, resume, checksum."""

import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

from sumpool.data.archive import require_md5
from sumpool.data.progress import transfer
from sumpool.errors import InputError


def download(url: str, target: Path, md5: str) -> Path:
    """Fetch `url` to `target` unless a file with the right checksum is there; an interrupted fetch goes on.

    What has arrived is kept beside the target until the checksum agrees.
    """
    if not url.startswith(("https://", "http://")):
        raise InputError(f"downloads use http or https, got {url}")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(target.name + ".part")
        _fetch(url, partial)
        try:
            require_md5(partial, md5)
        except InputError:
            partial.unlink()
            raise
        partial.replace(target)
    require_md5(target, md5)
    return target


def _fetch(url: str, partial: Path) -> None:
    have = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            resumed = answer.status == 206  # a server that ignores the range sends everything again
            _receive(answer, partial, have if resumed else 0, url)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code != 416:  # 416: nothing is left to send, the checksum decides
            raise InputError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise InputError(f"{url} could not be fetched ({error}): run again to continue") from error


def _receive(answer: "urllib.request._UrlopenRet", partial: Path, have: int, url: str) -> None:
    left = answer.headers.get("Content-Length")
    total = have + int(left) if left else None
    with transfer() as bar, partial.open("ab" if have else "wb") as file:
        task = bar.add_task(url.rsplit("/", 1)[-1], total=total, completed=have)
        while block := answer.read(1 << 18):
            file.write(block)
            bar.advance(task, len(block))
    # A connection that is cut looks like the end of the file.
    arrived = partial.stat().st_size
    if total is not None and arrived < total:
        raise InputError(f"{url} broke off after {arrived} of {total} bytes: run again to continue")
