"""The `sumpool` command: one module per sub-command, imported only when it is called."""

import argparse
import os
import sys
from importlib import import_module

from sumpool import __version__
from sumpool.errors import InputError
from sumpool.registry import lookup

# sub-command → one-line description; the module `sumpool.cli.<name>` has `configure(parser)` and `run(args)`.
COMMANDS = {
    "compare": "compare two runs or methods: difference, interval, p, effect",
    "data": "look at, fetch, unpack and check datasets",
    "demo": "see within minutes that GSP finds what matters, without any download",
    "embed": "embed a folder of images into a file of vectors",
    "evaluate": "score a model on a dataset",
    "explain": "draw which places and prototypes make an embedding, or a similarity",
    "export": "write a model as ONNX",
    "index": "embed a folder of images into a searchable index",
    "list": "show every registered component with a one-line description",
    "protocol": "run a published protocol: its trainings, and the table a paper would print",
    "report": "combine runs and protocols into a page, or Markdown, CSV or LaTeX",
    "search": "find the images of an index that are most similar to an image",
    "sweep": "train many runs over a search space, and show what matters",
    "train": "train an embedder, or continue a run",
    "study": "run a study: a figure or table of the texts, by name",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 on success, 2 on a user's mistake (printed as one sentence), 130 on Ctrl-C."""
    argv = sys.argv[1:] if argv is None else argv
    # Read when PyTorch is loaded, later: with another busy process, spinning OpenMP threads are many times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return _dispatch(argv)
    except BrokenPipeError:  # the reader (`head`, say) has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InputError, OSError) as mistake:  # OSError: a file where a folder is needed, no room, no permission
        print(f"sumpool: {mistake}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("sumpool: interrupted", file=sys.stderr)
        return 130


def _dispatch(argv: list[str]) -> int:
    overview = argparse.ArgumentParser(
        prog="sumpool",
        description="Deep metric learning with generalized sum pooling.",
        epilog="commands:\n" + "".join(f"  {name:<10} {line}\n" for name, line in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    overview.add_argument("--version", action="version", version=f"sumpool {__version__}")
    overview.add_argument("command", metavar="COMMAND", help="see below; `sumpool COMMAND --help` explains one")
    if not argv:
        overview.print_help()
        return 0
    if argv[0].startswith("-"):
        overview.parse_args([argv[0], "COMMAND"])  # with a command, so that what is unknown is what is named
    name = argv[0]
    description = lookup("command", COMMANDS, name)
    command = import_module(f"sumpool.cli.{name}")
    if hasattr(command, "parse"):  # settings come from a signature, not from a list of flags
        command.run(command.parse(argv[1:]))
    else:
        parser = argparse.ArgumentParser(prog=f"sumpool {name}", description=description)
        command.configure(parser)
        command.run(parser.parse_args(argv[1:]))
    sys.stdout.flush()
    return 0
