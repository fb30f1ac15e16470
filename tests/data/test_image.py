"""Every kind of file becomes upright 8-bit pixels, or an error with its name."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from sumpool.data.image import decode, naming, open_image, shrunk, upright_size
from sumpool.errors import InputError

Picture = Callable[..., Image.Image]


def saved(image: Image.Image, path: Path, **options: object) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["L", "1", "P", "RGBA", "LA", "CMYK"])
def test_modes_become_rgb(tmp_path: Path, mode: str, picture: Picture) -> None:
    suffix = "jpg" if mode == "CMYK" else "png"
    path = saved(picture(0).convert(mode), tmp_path / f"x.{suffix}")
    decoded = decode(open_image(path))
    assert decoded.mode == "RGB"
    expected = np.asarray(picture(0).convert(mode).convert("RGB"), float)
    assert np.abs(np.asarray(decoded, float) - expected).mean() < (8 if mode == "CMYK" else 1)


def test_16_bits_are_scaled_not_clipped(tmp_path: Path) -> None:
    deep = np.random.default_rng(0).integers(0, 65536, (16, 16), np.uint16)
    path = saved(Image.fromarray(deep), tmp_path / "deep.png")
    assert np.array_equal(np.asarray(decode(open_image(path), "L")), np.round(deep / 65535 * 255))


def test_floating_point_pixels_are_named(tmp_path: Path) -> None:
    path = saved(Image.fromarray(np.ones((4, 4), np.float32)), tmp_path / "float.tif")
    with (
        pytest.raises(InputError, match=r"^image \S*float\.tif cannot be used: floating-point pixels have no defined"),
        naming(str(path)),
    ):
        decode(open_image(path))


def test_transparency_is_shown_on_white(tmp_path: Path) -> None:
    path = saved(Image.new("RGBA", (4, 4), (0, 0, 0, 0)), tmp_path / "clear.png")
    assert np.all(np.asarray(decode(open_image(path))) == 255)


@pytest.mark.parametrize("turn", range(1, 9))
def test_exif_rotation(tmp_path: Path, turn: int, picture: Picture) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    path = saved(picture(1), tmp_path / "turned.png", exif=exif)
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(path.read_bytes())))
    opened = open_image(path)
    assert upright_size(opened) == expected.size
    assert np.array_equal(np.asarray(decode(opened)), np.asarray(expected))


@pytest.mark.parametrize("turn", [1, 6])
def test_scaled_decoding_is_smaller_and_looks_the_same(tmp_path: Path, turn: int, picture: Picture) -> None:
    exif = Image.Exif()
    exif[0x0112] = turn
    path = saved(picture(2, (801, 603)), tmp_path / "large.jpg", quality=95, exif=exif)
    full, quarter = decode(open_image(path)), decode(open_image(path), scale=0.2)
    assert quarter.size == tuple(-(-side // 4) for side in full.size)
    difference = np.asarray(quarter.resize((80, 80)), float) - np.asarray(full.resize((80, 80)), float)
    assert np.abs(difference).mean() < 2


def test_scaled_decoding_never_goes_below_what_is_asked(tmp_path: Path, picture: Picture) -> None:
    path = saved(picture(2, (801, 603)), tmp_path / "large.jpg")
    for scale in (0.9, 0.5, 0.26, 0.124):
        decoded = decode(open_image(path), scale=scale)
        assert min(decoded.width / 801, decoded.height / 603) >= scale


def test_gray_jpeg_can_be_read_as_gray(tmp_path: Path, picture: Picture) -> None:
    path = saved(picture(3), tmp_path / "colour.jpg", quality=95)
    gray = decode(open_image(path), "L")
    assert gray.mode == "L"
    assert np.abs(np.asarray(gray, float) - np.asarray(picture(3).convert("L"), float)).mean() < 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not an image", "not in a format that Pillow reads"),
        (b"", "not in a format that Pillow reads"),
        (None, "does not exist"),
    ],
)
def test_unreadable_files_are_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "odd.jpg"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=rf"odd\.jpg.* {message}"), naming(str(path)):
        decode(open_image(path))


@pytest.mark.parametrize("form", ["jpg", "png", "webp", "gif"])
def test_truncated_files_are_named(tmp_path: Path, form: str, picture: Picture) -> None:
    path = saved(picture(4, (200, 150)), tmp_path / f"cut.{form}")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=rf"cut\.{form}"), naming(str(path)):
        decode(open_image(path))


def test_a_bomb_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, picture: Picture) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    path = saved(picture(4), tmp_path / "huge.png")
    with pytest.raises(InputError, match=r"huge\.png cannot be decoded: .*decompression bomb"), naming(str(path)):
        open_image(path)


def test_four_tiles_make_a_collage() -> None:
    tiles = tuple(np.full((2, 2, 3), value, np.uint8) for value in range(4))
    assert np.asarray(open_image(tiles))[:, :, 0].tolist() == [[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2


def test_tokens_are_not_an_image() -> None:
    with pytest.raises(InputError, match="tokens are read without a transform"):
        open_image(np.arange(4))


def test_shrinking_keeps_the_aspect_and_never_enlarges(picture: Picture) -> None:
    small, scale = shrunk(np.asarray(picture(5, (400, 200))), 50)
    assert (small.size, scale) == ((100, 50), 0.25)
    same, scale = shrunk(np.asarray(picture(5, (40, 20))), 50)
    assert (same.size, scale) == ((40, 20), 1.0)
