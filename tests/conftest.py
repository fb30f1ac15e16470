"""Hypothesis draws the same examples in every run: a test that fails after a change fails because of the change."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
