"""Bring a published set below the data folder, and check one's own images."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sumpool.data import DATASETS
from sumpool.data.archive import require_md5, unpack
from sumpool.data.download import download
from sumpool.data.image import decode, naming, open_image
from sumpool.data.progress import counted
from sumpool.data.root import data_root
from sumpool.data.sets.official import OfficialSet
from sumpool.errors import InputError
from sumpool.registry import lookup


def official_set(name: str) -> OfficialSet:
    """The published set of that name."""
    published = {key: entry for key, entry in DATASETS.items() if isinstance(entry, OfficialSet)}
    return lookup("published dataset", published, name)


def prepare_archives(
    chosen: OfficialSet, archives: Sequence[Path], root: str | Path | None = None, unverified: bool = False
) -> Path:
    """Check the archives against the published checksums and unpack them to ROOT/NAME."""
    known = {archive.file: archive.md5 for archive in chosen.archives}
    for path in archives:
        checksum = known.get(path.name)
        if checksum and path.is_file() and not unverified:
            require_md5(path, checksum)
    folder = data_root(root) / chosen.name
    for path in archives:
        unpack(path, folder)
    return folder


def fetch_archives(chosen: OfficialSet, root: str | Path | None = None) -> list[Path]:
    """Download the archives of a set to ROOT/archives; refused where no stable public address is known."""
    folder = data_root(root) / "archives" / chosen.name
    fetched = []
    for archive in chosen.archives:
        if archive.url is None or archive.md5 is None:
            raise InputError(f"{chosen.name} has no stable public address: {chosen.advice()}")
        fetched.append(download(archive.url, folder / archive.file, archive.md5))
    return fetched


def undecodable(files: Sequence[Path]) -> list[str]:
    """Decode every file completely; one sentence per file that fails."""
    with ThreadPoolExecutor() as pool:  # Pillow releases the interpreter lock
        outcomes = counted(pool.map(_problem, files), len(files), "decoding")
        return [problem for problem in outcomes if problem]


def _problem(path: Path) -> str | None:
    try:
        with naming(str(path)):
            decode(open_image(path))
    except InputError as problem:
        return str(problem)
    return None
