"""What the published sets share: where they lie under the data folder, where they come from, and their counts."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sumpool.data.checks import Counts, require_counts, require_sound
from sumpool.data.dataset import Dataset
from sumpool.data.pack import read_pack
from sumpool.data.root import data_root
from sumpool.errors import InputError
from sumpool.types import Preprocessing


class Archive(NamedTuple):
    """A file as its publisher gives it."""

    file: str
    md5: str | None = None
    url: str | None = None
    """None where no stable public address is known."""


class OfficialSet:
    """A published dataset: call it with the data folder to read it.

    `NAME.npz` (a pack) is preferred over the folder `NAME`, and that over the folder name of the official archive.
    """

    def __init__(
        self,
        read: Callable[[Path], Dataset],
        name: str,
        folder: str,
        published: Counts,
        archives: tuple[Archive, ...],
        preprocessing: Preprocessing | None = None,
        other_packs: dict[str, Counts] | None = None,
    ) -> None:
        self.read, self.name, self.folder, self.archives = read, name, folder, archives
        self.published, self.preprocessing = published, preprocessing
        self.packs = {f"{name}.npz": published, **(other_packs or {})}
        self.__doc__ = read.__doc__

    def __call__(self, root: str | Path | None = None, verify: bool = True) -> Dataset:
        """Read the set below the data folder; `verify` compares its counts with the published ones."""
        path, published = self.find(data_root(root))
        return self.open(path, published if verify else {})

    def open(self, path: Path, published: Counts) -> Dataset:
        """Read a pack or folder and require some counts."""
        dataset = read_pack(path, self.name) if path.suffix == ".npz" else self._read_folder(path)
        dataset.preprocessing = self.preprocessing
        require_counts(dataset, published)
        return require_sound(dataset)

    def _read_folder(self, folder: Path) -> Dataset:
        try:
            return self.read(folder)
        except InputError:
            raise
        # Lists that are cut off lack keys, columns or digits; SciPy's reader of MATLAB files raises nearly anything.
        except Exception as error:
            raise InputError(
                f"{self.name} in {folder} is damaged or incomplete ({type(error).__name__}: {error}): "
                f"prepare it again with `sumpool data prepare {self.name} --from ARCHIVE`"
            ) from error

    def find(self, root: Path) -> tuple[Path, Counts]:
        """The pack or folder of the set, and the counts it should have."""
        for pack, published in self.packs.items():
            if (root / pack).is_file():
                return root / pack, published
        for folder in (root / self.name, root / self.folder):
            if folder.is_dir():
                return folder, self.published
        places = ", ".join([*self.packs, f"{self.name}/", f"{self.folder}/"])
        raise InputError(f"{self.name} is not in {root} (looked for {places}): {self.advice()}")

    def advice(self) -> str:
        """How to get the set."""
        if all(archive.url for archive in self.archives):
            return f"`sumpool data download {self.name}` fetches it"
        files = " ".join(archive.file for archive in self.archives)
        return f"get {files} from its publisher, then `sumpool data prepare {self.name} --from {files}`"


def official(
    name: str,
    folder: str,
    published: Counts,
    archives: tuple[Archive, ...],
    preprocessing: Preprocessing | None = None,
    other_packs: dict[str, Counts] | None = None,
) -> Callable[[Callable[[Path], Dataset]], OfficialSet]:
    """Make a reader of a folder into an `OfficialSet`."""
    return lambda read: OfficialSet(read, name, folder, published, archives, preprocessing, other_packs)


def descend(folder: Path, marker: str) -> Path:
    """The folder that holds `marker`: `folder` itself or the only level an archive adds."""
    for place in (folder, *sorted(path for path in folder.iterdir() if path.is_dir())):
        if (place / marker).exists():
            return place
    raise InputError(f"{folder} has no {marker}: unpack the whole official archive there")


def table(path: Path, skip: int = 0) -> list[list[str]]:
    """Rows of a text file with columns separated by white space."""
    if not path.is_file():
        raise InputError(f"{path} is missing: unpack the whole official archive")
    return [line.split() for line in path.read_text(encoding="utf-8").splitlines()[skip:] if line.strip()]
