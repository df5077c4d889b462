"""Pages of runs in tests: none, unless a test wants them."""

import pytest

from hebbseg.reporting.run_page import page

ADD_RUN_PAGE = page.add_run_page  # before tests/conftest.py replaces it


def with_run_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings write report.html, as they do outside of tests."""
    monkeypatch.setattr(page, "add_run_page", ADD_RUN_PAGE)


def without_run_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings write no report.html, which takes as long as a tiny training."""
    monkeypatch.setattr(page, "add_run_page", str)
