"""Pure tensor functions: torch only, no state. Shape letters are explained in `docs/notation.md`."""
