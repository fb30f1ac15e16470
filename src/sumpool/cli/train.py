"""`sumpool train`: train an embedder, or continue a run."""

import re
import time
from argparse import ArgumentError, Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, get_loader

from sumpool.errors import InputError
from sumpool.registry import nearest
from sumpool.training.config import TrainConfig, merged, to_yaml
from sumpool.training.presets import PROTOCOLS, protocol_settings

OWN = ("out", "resume", "config", "protocol", "print_config")


def settings_parser() -> ArgumentParser:
    """A parser with a flag for every setting of a run."""
    parser = ArgumentParser(
        prog="sumpool train",
        description="Train an embedder: sumpool train DATASET [--SETTING VALUE …], or sumpool train --resume RUN.",
        exit_on_error=False,
        print_config=None,  # its own would not show what a protocol sets
    )
    parser.add_argument("--config", action="config", help="YAML file of settings; flags after it win")
    parser.add_argument("--out", type=str, help="folder of the run (default: runs/DATASET-TIME)")
    parser.add_argument("--resume", type=str, metavar="RUN", help="continue the run in this folder")
    parser.add_argument("--protocol", type=str, help=f"settings of a published protocol: {', '.join(PROTOCOLS)}")
    parser.add_argument("--print_config", action="store_true", help="print the complete configuration and stop")
    parser.add_class_arguments(TrainConfig, None, as_group=False, skip={"dataset"})
    parser.add_argument("--dataset", type=str, help="what to train on; also the first argument without a flag")
    return parser


def parse(argv: list[str]) -> Namespace:
    """The flags as a namespace; `given` holds the settings that were written, on the line or in a file."""
    if argv and not argv[0].startswith("-"):
        argv = ["--dataset", *argv]
    argv, nested = _without_nested([_underscored(word) for word in argv])
    parser = settings_parser()
    try:
        values = merged(parser.parse_args(argv, defaults=False).as_dict(), nested)
        complete = merged(parser.parse_args(argv).as_dict(), nested)
    except ArgumentError as mistake:
        raise InputError(_sentence(str(mistake))) from mistake
    own = {name: complete.pop(name, None) for name in OWN}
    given = {name: value for name, value in values.items() if name not in OWN}
    if own["protocol"]:
        complete = merged(merged(complete, _published(own["protocol"], complete, given)), given)
    return Namespace(**own, given=given, settings=complete)


def _published(protocol: str, settings: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a protocol; those of another dataset's when `preset` is given, such as for a pack of it."""
    dataset = given.get("preset") or settings.get("dataset") or ""
    return protocol_settings(protocol, dataset, settings["loss"], settings["pooling"], given.get("backbone"))


def run(args: Namespace) -> None:
    """Train."""
    folder, config = (_saved if args.resume else _new)(args)
    if args.print_config:
        print(to_yaml(config), end="")
        return
    from sumpool.training.processes import leave
    from sumpool.training.start import start

    try:
        training = start(folder, config, resume=bool(args.resume))
        training.fit()
        if training.processes.writes:
            print(_ending(training))
    finally:
        leave()


def read_yaml(text: str, source: str) -> Any:
    """The content of YAML text, numbers such as 1e-3 included, which plain YAML 1.1 takes for words."""
    try:
        return get_loader("yaml")(text)
    except yaml.YAMLError as reason:
        raise InputError(f"{source} is not YAML: {' '.join(str(reason).split())}") from reason


def _new(args: Namespace) -> tuple[Path, TrainConfig]:
    if not args.settings.get("dataset"):
        raise InputError("name a dataset or the path of one: sumpool train DATASET (`sumpool list datasets`)")
    config = TrainConfig.from_dict(args.settings)
    name = re.sub(r"[^\w.-]+", "-", Path(config.dataset).name or "run")
    return Path(args.out or f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}"), config


def _saved(args: Namespace) -> tuple[Path, TrainConfig]:
    """The configuration of the run to continue; a flag that contradicts it is refused."""
    folder = Path(args.resume)
    if args.out:
        raise InputError("--resume continues in its own folder: leave --out away")
    if args.protocol:
        raise InputError("--resume continues with the settings of its run: leave --protocol away")
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder} holds no run: it has no config.yaml")
    saved: dict[str, Any] = parse(["--config", str(folder / "config.yaml")]).settings
    for name, value in args.given.items():
        if value is not None and value != saved[name]:
            raise InputError(f"the run was started with {name} {saved[name]}, not {value}: start a new run for that")
    return folder, TrainConfig.from_dict(saved)


def _ending(training: Any) -> str:
    """What the user reads when training stops."""
    best = f"best {training.config.score} {training.best_score:.4f} at step {training.best_step}"
    if training.interrupted:
        return (
            f"stopped after step {training.step} ({best}); continue with: sumpool train --resume {training.run.folder}"
        )
    return f"{best} of {training.step}; the model is in {training.run.folder / 'best'}"


def _underscored(word: str) -> str:
    """Flags may be written with dashes: --validate-every is --validate_every."""
    flag, equals, value = word.partition("=")
    return "--" + flag[2:].replace("-", "_") + equals + value if word.startswith("--") else word


def _without_nested(argv: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The arguments without those like `--loss_settings.xbm.batches 3`, and those as a nested dictionary.

    The parser takes dotted flags too, but of two with a common beginning it keeps only the last.
    """
    rest: list[str] = []
    nested: dict[str, Any] = {}
    words = iter(argv)
    for word in words:
        flag, equals, value = word.partition("=")
        if not (flag.startswith("--") and "." in flag):
            rest.append(word)
            continue
        *path, last = flag[2:].split(".")
        if not path[0].endswith("_settings"):
            raise InputError(f"{flag} has parts, but only settings of components do, such as --pooling_settings.mass")
        place = nested
        for key in path:
            place = place.setdefault(key, {})
        place[last] = read_yaml(value if equals else next(words, ""), flag)
    return rest, nested


def _sentence(message: str) -> str:
    """A parser's complaint in one line, with the nearest setting when a name is unknown."""
    unknown = re.search(r"unrecognized arguments: --(\S+)|Option '(\S+)' is not accepted", message)
    if unknown:
        name = (unknown[1] or unknown[2]).split("=")[0]
        known = [entry.name for entry in fields(TrainConfig)]
        return f"unknown setting {name!r}: {nearest(name, [*known, *OWN])}"
    return " ".join(message.split())
