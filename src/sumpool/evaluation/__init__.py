"""Protocols, statistics and reports: from trainings to the table a paper would print."""
