"""Archives from the internet: safe, resumable, checksummed, and fetched with resume."""

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sumpool.data.archive import unpack
from sumpool.data.download import download
from sumpool.data.prepare import fetch_archives, official_set, prepare_archives
from sumpool.errors import InputError

Makers = dict[str, Callable[[Path], list[Path]]]
CONTENT = bytes(range(256)) * 5000
MD5 = hashlib.md5(CONTENT).hexdigest()


def tar_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as archive:
        for member in members:
            member.size = 0 if member.issym() or member.islnk() else 3
            archive.addfile(member, io.BytesIO(b"abc"))
    return path


def link(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("photo.jpg")
    member.type, member.linkname = kind, "/etc/passwd"
    return member


@pytest.mark.parametrize("name", ["/etc/evil", "../evil", "a/../../evil", "C:evil", "a\\..\\evil"])
def test_names_that_lead_out_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(name, b"abc")
    for path in (tar_with(tmp_path / "x.tar", tarfile.TarInfo(name)), tmp_path / "x.zip"):
        with pytest.raises(InputError, match="would be written outside its folder: not unpacked"):
            unpack(path, tmp_path / "out" / "deep")
    assert not list(tmp_path.rglob("*evil*"))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE])
def test_links_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(InputError, match=r"'photo\.jpg', a link or device: not unpacked"):
        unpack(tar_with(tmp_path / "x.tar", link(kind)), tmp_path / "out")


def test_links_in_zips_are_refused(tmp_path: Path) -> None:
    info = zipfile.ZipInfo("photo.jpg")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InputError, match="a link: not unpacked"):
        unpack(tmp_path / "x.zip", tmp_path / "out")


def test_a_second_run_goes_on(tmp_path: Path, makers: Makers) -> None:
    (archive,) = makers["cub"](tmp_path)
    total = unpack(archive, tmp_path / "out")
    assert total == 12 + 4
    files = sorted((tmp_path / "out").rglob("*.jpg"))
    files[0].unlink()
    files[1].write_bytes(b"cut")
    content = files[2].read_bytes()
    assert unpack(archive, tmp_path / "out") == 2
    assert files[0].exists()
    assert files[1].stat().st_size > 3
    assert files[2].read_bytes() == content
    assert not list((tmp_path / "out").rglob("*.part"))


@pytest.mark.parametrize("name", ["cub", "sop"])
def test_a_cut_archive_is_named(tmp_path: Path, makers: Makers, name: str) -> None:
    (archive,) = makers[name](tmp_path)
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with pytest.raises(InputError, match=f"{archive.name} is damaged or incomplete .*: fetch it again"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out" / archive.name).exists()


def test_an_archive_only_by_name_leaves_nothing(tmp_path: Path) -> None:
    for name in ("page.zip", "page.TAR.GZ", "page.tgz"):
        (tmp_path / name).write_text("<html>not found</html>")
        with pytest.raises(InputError, match=rf"{name} is damaged or incomplete \(neither tar nor zip\)"):
            unpack(tmp_path / name, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("field", "value", "message"), [(6, 1, "is encrypted"), (8, 99, "compression method")])
def test_a_zip_that_python_cannot_open_is_named(tmp_path: Path, field: int, value: int, message: str) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("photo.jpg", b"abc")
    content = bytearray((tmp_path / "x.zip").read_bytes())
    for header in (field, content.index(b"PK\x01\x02") + field + 2):  # in front of the member and in the directory
        content[header] = value
    (tmp_path / "x.zip").write_bytes(content)
    with pytest.raises(InputError, match=rf"x\.zip cannot be unpacked \(.*{message}"):
        unpack(tmp_path / "x.zip", tmp_path / "out")


def test_another_version_of_an_archive_is_refused(tmp_path: Path, makers: Makers) -> None:
    (archive,) = makers["cub"](tmp_path)
    with pytest.raises(InputError, match=r"CUB_200_2011\.tgz has MD5 \w+, published 97eceeb1\w+: the file is damaged"):
        prepare_archives(official_set("cub"), [archive], tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.tgz does not exist"):
        prepare_archives(official_set("cub"), [tmp_path / "nothing.tgz"], tmp_path)


class Server(BaseHTTPRequestHandler):
    """Sends CONTENT; `ranges` says whether it honours a range, `cut` after how many bytes it hangs up.

    `chunked` sends a chunk that promises all and no length.
    """

    ranges, cut, chunked = True, len(CONTENT), False
    asked: list[str | None]

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        type(self).asked.append(wanted)
        if self.path != "/file":
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.ranges else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if self.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        if self.chunked:
            self.wfile.write(b"%x\r\n" % (len(CONTENT) - start))
        self.wfile.write(CONTENT[start : self.cut])

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[Server], str]]:
    handler = type("Handler", (Server,), {"asked": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.02,))
        thread.start()
        yield handler, f"http://127.0.0.1:{running.server_port}/file"
        running.shutdown()
        thread.join()


def test_download_checks_the_sum_and_does_not_fetch_twice(tmp_path: Path, server: tuple[type[Server], str]) -> None:
    handler, url = server
    assert download(url, tmp_path / "a" / "file", MD5).read_bytes() == CONTENT
    download(url, tmp_path / "a" / "file", MD5)
    assert handler.asked == [None]


@pytest.mark.parametrize("ranges", [True, False])
def test_download_goes_on_where_it_stopped(tmp_path: Path, server: tuple[type[Server], str], ranges: bool) -> None:
    handler, url = server
    for cut, broke in ((500_000, "broke off after 500000"), (700_000, "broke off after 700000")):
        handler.cut = cut
        with pytest.raises(InputError, match=f"{broke} of {len(CONTENT)} bytes: run again to continue"):
            download(url, tmp_path / "file", MD5)
    handler.cut, handler.ranges = len(CONTENT), ranges
    assert download(url, tmp_path / "file", MD5).read_bytes() == CONTENT
    assert handler.asked == [None, "bytes=500000-", "bytes=700000-"]


def test_a_cut_chunk_is_one_sentence(tmp_path: Path, server: tuple[type[Server], str]) -> None:
    handler, url = server
    handler.cut, handler.chunked = 700_000, True
    with pytest.raises(InputError, match=r"could not be fetched .*: run again to continue"):
        download(url, tmp_path / "file", MD5)
    assert (tmp_path / "file.part").stat().st_size > 0


def test_a_complete_part_is_only_checked(tmp_path: Path, server: tuple[type[Server], str]) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    assert download(server[1], tmp_path / "file", MD5).read_bytes() == CONTENT


def test_a_wrong_sum_is_refused_and_removed(tmp_path: Path, server: tuple[type[Server], str]) -> None:
    with pytest.raises(InputError, match="published 0000: the file is damaged or another version"):
        download(server[1], tmp_path / "file", "0000")
    assert not list(tmp_path.iterdir())


def test_what_the_server_says_is_one_sentence(tmp_path: Path, server: tuple[type[Server], str]) -> None:
    with pytest.raises(InputError, match="answered 404 Not Found"):
        download(server[1] + "/other", tmp_path / "file", MD5)
    with pytest.raises(InputError, match="downloads use http or https"):
        download("file:///etc/passwd", tmp_path / "file", MD5)
    with pytest.raises(InputError, match="could not be fetched"):
        download("http://127.0.0.1:9/file", tmp_path / "file", MD5)


@pytest.mark.parametrize("name", ["cars", "inshop"])
def test_sets_without_a_public_address_say_so(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name} has no stable public address: get .* from its publisher"):
        fetch_archives(official_set(name), tmp_path)
