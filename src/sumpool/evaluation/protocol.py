"""A protocol: which trainings make a row of a published table, and the folder that holds them.

fair          every range of the training classes is held out once: F models, R repeats of each
tuning        one range is held out, R repeats; scored on it: the test classes stay unseen while settings are chosen
conventional  all training classes, R repeats, the model selected on the test classes: old practice, not a fair estimate

OUT/protocol.json              what was asked for
OUT/METHOD/fFOLDrREPEAT/       one training, as `sumpool train` writes it, and the embeddings it is scored with
OUT/METHOD/scores.safetensors  per-query scores of the trainings and their ensembles
OUT/results.json, scores.csv   the table, and the raw scores
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sumpool.errors import InputError
from sumpool.evaluation.engines import Trial, complete
from sumpool.evaluation.methods import Method, applicable, expand, parse_method
from sumpool.evaluation.trial import Part
from sumpool.files import write_atomically
from sumpool.registry import lookup
from sumpool.training.config import TrainConfig
from sumpool.training.presets import PROTOCOLS

PROTOCOL = "protocol.json"
DECIDED = ("loss", "pooling", "validate_on", "fold")  # by the method or the protocol
FREE = ("device", "workers", "data_root")  # may change when a protocol is continued, perhaps on another machine


@dataclass(frozen=True)
class Protocol:
    """The trainings of a comparison: methods × folds × repeats on one dataset."""

    kind: str
    dataset: str
    repeats: int
    methods: dict[str, dict[str, Any]]
    """Name → complete settings; fold and seed are those of the first training."""
    command: str = "the same command"
    """What the user wrote, to continue."""

    @property
    def folds(self) -> int:
        """Models of an ensemble."""
        return max(int(settings["folds"]) for settings in self.methods.values()) if self.kind == "fair" else 1

    @property
    def scored_on(self) -> Part:
        """The classes that the scores are of."""
        return "validation" if self.kind == "tuning" else "test"

    @property
    def selected_on_test(self) -> bool:
        """Whether models are selected on the classes that the scores are of, although these are called test classes."""
        return self.kind == "conventional"

    def runs(self, folder: Path, method: str) -> list[list[Path]]:
        """Run folders of a method by fold and repeat."""
        home = folder / parse_method(method).slug
        return [[home / f"f{fold}r{repeat}" for repeat in range(self.repeats)] for fold in range(self.folds)]

    def trials(self, folder: Path) -> Iterator[Trial]:
        """Every training, one repeat of all methods after the other; no two trainings of a method share a seed."""
        for repeat in range(self.repeats):
            for method, settings in self.methods.items():
                for fold, runs in enumerate(self.runs(folder, method)):
                    seed = settings["seed"] + self.folds * repeat + fold
                    place = {"fold": fold} if self.kind == "fair" else {}
                    yield TrainConfig.from_dict({**settings, **place, "seed": seed}), runs[repeat]

    def missing(self, folder: Path) -> list[Trial]:
        """The trainings that are not complete."""
        return [trial for trial in self.trials(folder) if not complete(trial, self.scored_on)]

    def save(self, folder: Path) -> None:
        """Write the file."""
        about = {"protocol": self.kind, "dataset": self.dataset, "folds": self.folds, "repeats": self.repeats}
        about |= {"scored on": self.scored_on, "selected on test": self.selected_on_test, "command": self.command}
        methods = [
            {"method": name, "slug": parse_method(name).slug, "settings": settings}
            for name, settings in self.methods.items()
        ]
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**about, "methods": methods}, indent=1, ensure_ascii=False)
        write_atomically(folder / PROTOCOL, (text + "\n").encode())


def create_protocol(
    kind: str, methods: Sequence[str], given: Mapping[str, Any], repeats: int = 3, command: str = Protocol.command
) -> Protocol:
    """The protocol of `methods`, named as in the papers, with settings that win over the published ones."""
    lookup("protocol", PROTOCOLS, kind)
    for name in DECIDED:
        if name in given:
            raise InputError(f"{name} follows from the protocol and the method: leave {name} {given[name]} away")
    if not methods or not given.get("dataset") or repeats < 1:
        raise InputError(
            f"a protocol needs a dataset, methods and at least 1 repeat, got {given.get('dataset')!r}, "
            f"{list(methods)} and {repeats}"
        )
    parsed = [parse_method(name) for name in methods]
    _require_use(parsed, given)
    settings = {method.name: _plain(expand(method, kind, given)) for method in parsed}
    if kind == "tuning":
        settings = {name: {**values, "fold": values["folds"] - 1} for name, values in settings.items()}
    protocol = Protocol(kind, given["dataset"], repeats, settings, command)
    _check(protocol)
    return protocol


def load_protocol(folder: Path) -> Protocol:
    """The protocol of a folder."""
    try:
        content = json.loads((folder / PROTOCOL).read_text())
        methods = {entry["method"]: entry["settings"] for entry in content["methods"]}
        return Protocol(content["protocol"], content["dataset"], content["repeats"], methods, content["command"])
    except (ValueError, KeyError, TypeError) as reason:
        raise InputError(
            f"{folder / PROTOCOL} is damaged ({type(reason).__name__}: {reason}): delete it, and the same command as "
            "before writes it anew and keeps the trainings"
        ) from reason


def open_protocol(folder: Path, protocol: Protocol) -> Protocol:
    """The protocol to run in a folder: methods and repeats may be added; methods that have begun may not be changed."""
    if not (folder / PROTOCOL).exists():
        protocol.save(folder)
        return protocol
    before = load_protocol(folder)
    begun = {name: settings for name, settings in before.methods.items() if _begun(before, folder, name)}
    if not begun:
        protocol.save(folder)
        return protocol
    for name in ("kind", "dataset"):
        _refuse_change(folder, name, getattr(before, name), getattr(protocol, name))
    if protocol.repeats < before.repeats:
        _refuse_change(folder, "repeats", before.repeats, protocol.repeats)
    for method in begun.keys() & protocol.methods.keys():
        for name, value in protocol.methods[method].items():
            if name not in FREE:
                _refuse_change(folder, f"{name} of {method}", begun[method].get(name), value)
    both = replace(protocol, methods=begun | protocol.methods)
    _check(both)
    both.save(folder)
    return both


def run_protocol(folder: Path, protocol: Protocol, engine: Callable[..., None]) -> Protocol:
    """Train what is missing; `engine(trials, part=…)` says where."""
    protocol = open_protocol(folder, protocol)
    engine(protocol.missing(folder), part=protocol.scored_on)
    return protocol


def _begun(protocol: Protocol, folder: Path, method: str) -> bool:
    """Whether a training of a method has got as far as having a folder: its dataset and model could be made."""
    return any(run.exists() for runs in protocol.runs(folder, method) for run in runs)


def _require_use(methods: Sequence[Method], given: Mapping[str, Any]) -> None:
    """Refuse settings of a component that no method has."""
    own = [applicable(method, given) for method in methods]
    for name in ("pooling_settings", "loss_settings", "ccp_settings"):
        for key in given.get(name, {}):
            if not any(key in settings[name] for settings in own):
                raise InputError(f"{name}.{key} is given, but no method among {[m.name for m in methods]} has it")


def _check(protocol: Protocol) -> None:
    """Refuse methods that are the same, or that hold out different classes and cannot be compared."""
    first, *others = protocol.methods.items()
    for position, (name, settings) in enumerate(others):
        if settings["folds"] != first[1]["folds"] and protocol.kind != "conventional":
            raise InputError(
                f"{first[0]} holds out one of {first[1]['folds']} parts of the classes and {name} one of "
                f"{settings['folds']}, so they cannot be compared: set folds, or run them apart"
            )
        twin = next((other for other, values in [first, *others[:position]] if values == settings), None)
        if twin:
            raise InputError(f"{twin} and {name} are the same method with the same settings: name one of them")


def _refuse_change(folder: Path, name: str, before: Any, now: Any) -> None:
    if before != now:
        raise InputError(f"the protocol in {folder} has {name} {before}, not {now}: choose another folder for that")


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings as they come back from JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(settings))
    return plain
