"""Fixtures of the tests of first manifests: those of the tests of recordings."""

from tests.aot.recorded_builds.conftest import document, recorder, run

__all__ = ["document", "recorder", "run"]
