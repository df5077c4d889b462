"""Training, prediction, evaluation, ranking, export and reports open no network connection."""

import socket
from pathlib import Path

import pytest

from tests.tiny import TINY, bright_folder, command


def test_no_command_opens_a_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: socket.socket, address: object) -> None:
        if self.family != getattr(socket, "AF_UNIX", None):
            raise AssertionError(f"connection to {address}")

    for name in ("connect", "connect_ex", "bind", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *address, **_: pytest.fail(f"looked up {address}"))
    monkeypatch.chdir(tmp_path)  # check writes a contact sheet
    data, run = bright_folder(tmp_path / "data"), tmp_path / "run"
    with pytest.raises(AssertionError, match="connection to"), socket.socket() as opened:
        opened.connect(("127.0.0.1", 9))
    assert command(monkeypatch, "check", data) in (0, 1)
    assert command(monkeypatch, "train", data, "-o", run, *TINY) == 0
    assert command(monkeypatch, "predict", run, data / "images", "-o", tmp_path / "masks") == 0
    assert command(monkeypatch, "evaluate", run, data, "-o", tmp_path / "scores") == 0
    assert command(monkeypatch, "next", data, "--masks", "none", "-n", "2", "-o", tmp_path / "next.csv") == 0
    assert command(monkeypatch, "export", run, "-o", tmp_path / "model.pt", "--format", "torchscript") == 0
    assert command(monkeypatch, "report", run, "-o", tmp_path / "report.html") == 0
