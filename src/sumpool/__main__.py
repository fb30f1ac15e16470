"""`python -m sumpool`, which is also how `torchrun` starts many processes: `torchrun -m sumpool train …`."""

import sys

from sumpool.cli import main

if __name__ == "__main__":
    sys.exit(main())
