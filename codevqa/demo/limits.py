"""What visitors of the demo may use: every number that keeps one of them from taking the machine from the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoLimits:
    """Limits of one demo server; :mod:`codevqa.core.settings` has those of a program in the sandbox."""

    upload_bytes: int = 10 << 20
    """One picture file."""
    pixels: int = 24_000_000
    """One picture, told from its header before anything is decoded: a phone camera's largest."""
    pictures: int = 300
    """Pictures of one question."""
    question_bytes: int = 80 << 20
    """Files of one question together."""
    program: int = 4_000
    """Characters of a program that a visitor wrote."""
    shots: int = 12
    """In-context examples of one prompt."""
    at_once: int = 4
    """Questions of all visitors that are worked on at once; others wait in the queue."""
    queue: int = 32
    """Questions that wait; those that come when it is full are told to come back."""
    seconds: float = 120.0
    """One question, from its turn to its answer."""
    visitors: int = 64
    """Visitors remembered; beyond, the one who was away longest is forgotten."""
    memory_bytes: int = 4 << 20
    """Finished model calls kept for one visitor."""
    request_bytes: int = 512 << 10
    """One request that is no upload."""
    stored_bytes: int = 1 << 30
    """Uploaded pictures of all visitors together; beyond, uploads are refused until older ones are deleted."""
    keep_seconds: int = 1800
    """Uploaded pictures, and pages to download, are deleted after this."""

    @property
    def upload_request_bytes(self) -> int:
        """One upload, which may bring all the pictures of a question."""
        return min(self.pictures * self.upload_bytes, self.question_bytes) + (64 << 10)
