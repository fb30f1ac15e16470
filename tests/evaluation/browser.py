"""Chromium looks at a page: what loads, what overflows, what sorts, what can be read."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom",
]  # fmt: skip
CATCH = "<script>window.complaints = []; addEventListener('error', e => complaints.push(e.message), true);</script>"

# Runs in a page around the report, which lies in a frame of the wanted width.
LOOK = """
const view = document.querySelector("iframe").contentWindow, page = view.document;
const texts = [...page.querySelectorAll("body *")].filter(element => element.checkVisibility() &&
  [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim()) &&
  !["SCRIPT", "STYLE", "TITLE", "title"].includes(element.tagName));
const light = colour => {
  const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(part => part / 255)
    .map(part => part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4);
  return .2126 * r + .7152 * g + .0722 * b;
};
const clear = colour => colour === "transparent" || /rgba\\(.*, 0\\)/.test(colour);
const behind = element => {
  while (element && clear(view.getComputedStyle(element).backgroundColor)) element = element.parentElement;
  return element ? view.getComputedStyle(element).backgroundColor : "rgb(255, 255, 255)";
};
const contrast = element => {
  const style = view.getComputedStyle(element), inside = element.closest("svg");
  const [low, high] = [light(inside ? style.fill : style.color), light(behind(element))].sort((a, b) => a - b);
  return (high + .05) / (low + .05);
};
const column = (table, place) => [...table.tBodies[0].rows].map(row => row.cells[place].innerText);
const sorts = [...page.querySelectorAll("table.sortable")].map(table => [...table.tHead.rows[0].cells].map(head => {
  const button = head.querySelector("button"), found = {heading: head.innerText.trim(), orders: []};
  button.focus();
  found.focus = page.activeElement === button;
  for (let click = 0; click < 2; click++) {
    button.click();
    found.orders.push([head.getAttribute("aria-sort"), column(table, head.cellIndex)]);
  }
  found.marked = table.querySelectorAll("[aria-sort]").length;
  return found;
}));
const measured = texts.map(element => [contrast(element), element.textContent.trim().slice(0, 40)]);
const beyond = [...page.querySelectorAll("body *")].filter(element => !element.closest(".scroll *, pre, svg *") &&
  element.getBoundingClientRect().right > view.innerWidth + .5).map(element => element.outerHTML.slice(0, 80));
const found = {
  dark: view.matchMedia("(prefers-color-scheme: dark)").matches,
  background: view.getComputedStyle(page.body).backgroundColor,
  pictures: [...page.images].map(image => image.naturalWidth),
  unnamed: [...page.images].filter(image => !image.alt).length,
  width: view.innerWidth, needed: page.scrollingElement.scrollWidth, beyond,
  contrast: measured.sort((a, b) => a[0] - b[0])[0],
  sorts, complaints: view.complaints,
};
document.body.textContent = "";
document.body.append(Object.assign(document.createElement("pre"), {textContent: JSON.stringify(found)}));
"""


def look(page: str, folder: Path, width: int, dark: bool = False) -> dict[str, Any]:
    """What Chromium finds on a page in a window of a width; its sortable tables end up sorted by the last column."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine: apt-get install chromium")
    inner = escape(page.replace("<title>", f"{CATCH}<title>", 1))
    frame = f'<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{inner}"></iframe>'
    outer = folder / f"look_{width}_{dark}.html"
    outer.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f"<body>{frame}<script>addEventListener('load', () => {{{LOOK}}});</script></body>"
    )
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [CHROMIUM, *FLAGS, scheme, f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"]
    done = subprocess.run([*command, outer.as_uri()], capture_output=True, text=True, timeout=300)
    answer = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    assert answer, f"Chromium did not finish: {done.stderr[-2000:]}"
    found: dict[str, Any] = json.loads(unescape(answer[1]))
    return found
