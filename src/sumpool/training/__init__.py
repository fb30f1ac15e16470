"""Training: one readable step and loop, and runs that survive anything.

Nothing is imported here, so that the command line can read `config` without loading PyTorch.
"""
