"""Ports are free when they are given out, below the range of outgoing connections, and stay the same."""

from __future__ import annotations

import socket
from pathlib import Path

from sandbox.ports import PortBook, is_free, is_listening


def test_a_part_keeps_its_port(tmp_path: Path) -> None:
    first = PortBook(tmp_path).port_for_start("kafka")
    assert PortBook(tmp_path).port_for_start("kafka") == first
    assert PortBook(tmp_path).known("kafka") == first


def test_ports_are_free_and_below_the_range_for_outgoing_connections(tmp_path: Path) -> None:
    ports = [PortBook(tmp_path).port_for_start(f"part {number}") for number in range(20)]
    assert len(set(ports)) == 20
    assert all(1024 < port < 32768 and is_free(port) for port in ports)


def test_a_port_that_another_program_took_is_replaced(tmp_path: Path) -> None:
    book = PortBook(tmp_path, release_seconds=0)
    taken = book.port_for_start("kafka")
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        stranger.bind(("127.0.0.1", taken))
        stranger.listen()
        assert is_listening(taken)
        assert book.port_for_start("kafka") != taken


def test_an_unknown_part_has_no_port(tmp_path: Path) -> None:
    book = PortBook(tmp_path)
    assert book.known("kafka") is None
    book.port_for_start("kafka")
    book.forget("kafka")
    assert book.known("kafka") is None
