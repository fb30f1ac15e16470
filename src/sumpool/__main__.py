"""`python -m sumpool`, which is also how `torchrun` starts many processes: `torchrun -m sumpool train …`."""

import os
import sys
from typing import NoReturn

from sumpool.cli import main


def command() -> NoReturn:
    """Run the command line and end the process."""
    code = main()
    if int(os.environ.get("WORLD_SIZE", 1)) > 1:
        from sumpool.training.processes import end

        end(code)
    sys.exit(code)


if __name__ == "__main__":
    command()
