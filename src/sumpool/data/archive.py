"""Unpack an archive that came from the internet: members checked, resumable, checksummed."""

import gzip
import hashlib
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from sumpool.data.progress import counted
from sumpool.errors import InputError

ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tbz2", ".tar.bz2", ".txz", ".tar.xz")


class Member(NamedTuple):
    """A regular file of an archive."""

    name: str
    size: int
    stream: IO[bytes]


def md5_of(path: Path) -> str:
    """Checksum of a file (the publishers of these sets give MD5)."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def require_md5(path: Path, md5: str) -> None:
    """Refuse a file whose checksum differs from the published one."""
    found = md5_of(path)
    if found != md5:
        raise InputError(f"{path} has MD5 {found}, published {md5}: the file is damaged or another version")


def unpack(archive: Path, folder: Path) -> int:
    """Unpack a tar or zip archive into `folder`, or copy any other file there; the number of files written.

    A member is written beside its place and then renamed, so a file that exists is complete and a second run goes on
    where the first stopped. Links, devices and names that lead out of `folder` are refused.
    """
    if not archive.is_file():
        raise InputError(f"archive {archive} does not exist")
    written = 0
    with _readable(archive):
        members = _members(archive)
        folder.mkdir(parents=True, exist_ok=True)
        room = shutil.disk_usage(folder).free
        for member in counted(members, None, f"unpacking {archive.name}"):
            target = folder / safe_name(member.name, archive)
            if target.is_file() and target.stat().st_size == member.size:
                continue
            room -= member.size
            if room < 0:
                raise InputError(f"{folder} has no room for {archive.name}: free some space and run again")
            _write(member, target)
            written += 1
    return written


def safe_name(name: str, archive: Path) -> PurePosixPath:
    """A member's relative path, refused when it would leave the folder.

    >>> safe_name("../../etc/passwd", Path("x.zip"))
    Traceback (most recent call last):
    ...
    sumpool.errors.InputError: x.zip holds '../../etc/passwd', which would be written outside its folder: not unpacked
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or not path.parts:
        raise InputError(f"{archive} holds {name!r}, which would be written outside its folder: not unpacked")
    return path


def _members(archive: Path) -> Iterator[Member]:
    if tarfile.is_tarfile(archive):
        return _tar_members(archive)
    if zipfile.is_zipfile(archive):
        return _zip_members(archive)
    if archive.name.lower().endswith(ARCHIVES):
        raise InputError(f"archive {archive} is damaged or incomplete (neither tar nor zip): fetch it again")
    return _file_itself(archive)


def _file_itself(archive: Path) -> Iterator[Member]:
    with archive.open("rb") as stream:
        yield Member(archive.name, archive.stat().st_size, stream)


def _tar_members(archive: Path) -> Iterator[Member]:
    with tarfile.open(archive) as tar:
        for info in tar:
            if info.isdir():
                continue
            if not info.isreg():
                raise InputError(f"{archive} holds {info.name!r}, a link or device: not unpacked")
            stream = tar.extractfile(info)
            assert stream is not None
            yield Member(info.name, info.size, stream)


def _zip_members(archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(archive) as bundle:
        for info in bundle.infolist():
            if info.is_dir():
                continue
            if info.external_attr >> 28 == 0xA:  # a symbolic link, in the Unix file type bits
                raise InputError(f"{archive} holds {info.filename!r}, a link: not unpacked")
            with bundle.open(info) as stream:
                yield Member(info.filename, info.file_size, stream)


@contextmanager
def _readable(archive: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"archive {archive} is damaged or incomplete ({error}): fetch it again") from error
    except RuntimeError as error:  # a password, or a compression that this Python lacks
        raise InputError(f"archive {archive} cannot be unpacked ({error}): fetch the publisher's own file") from error


def _write(member: Member, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    with partial.open("wb") as file:
        shutil.copyfileobj(member.stream, file, 1 << 20)
    if partial.stat().st_size != member.size:
        raise InputError(
            f"{member.name} ended after {partial.stat().st_size} of {member.size} bytes: fetch the archive again"
        )
    partial.replace(target)
