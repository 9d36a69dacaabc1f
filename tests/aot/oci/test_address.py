"""Addresses, credentials and what a release says."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest
from nojit.aot.oci.address import Address, parse_address
from nojit.aot.oci.credentials import Credentials, find_credentials
from nojit.runtime.errors import RegistryError

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "host", "repository", "reference"),
    [
        ("oci://ghcr.io/acme/kernels:1.0", "ghcr.io", "acme/kernels", "1.0"),
        (f"oci://localhost:5000/k@sha256:{HEX}", "localhost:5000", "k", f"sha256:{HEX}"),
        ("oci://[::1]:5000/a/b/c:x", "[::1]:5000", "a/b/c", "x"),
        ("oci://Registry.Example/a__b-c.d:v1_2", "registry.example", "a__b-c.d", "v1_2"),
    ],
)
def test_addresses_are_read(text: str, host: str, repository: str, reference: str) -> None:
    address = parse_address(text)
    assert (address.host, address.repository, address.reference) == (host, repository, reference)
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    [
        "ghcr.io/acme:1",
        "https://ghcr.io/acme:1",
        "oci://",
        "oci:///acme:1",
        "oci://ghcr.io",
        "oci://ghcr.io/:1",
        "oci://ghcr.io/acme",
        "oci://ghcr.io/Acme:1",
        "oci://ghcr.io/a//b:1",
        "oci://ghcr.io/../etc:1",
        "oci://ghcr.io/acme:",
        "oci://ghcr.io/acme:a/b",
        f"oci://ghcr.io/acme:{'x' * 129}",
        "oci://ghcr.io/acme@sha256:12",
        f"oci://ghcr.io/acme@sha512:{HEX}",
        f"oci://ghcr.io/acme:1@sha256:{HEX}",
        "oci://ghcr.io/acme?x:1",
        "oci://ghcr.io/acme:1\n",
        "oci://gh cr.io/acme:1",
        "oci://ghcr.io:0/acme:1",
        "oci://ghcr.io:65536/acme:1",
        "oci://[1::2::3]/acme:1",
    ],
)
def test_other_texts_are_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="expected oci://REGISTRY/REPOSITORY:TAG"):
        parse_address(text)


def test_registries_on_this_machine_are_known() -> None:
    local = {"localhost", "localhost:5000", "127.0.0.1:1", "127.8.8.8", "[::1]:80", "[::1]"}
    others = {"localhost.example", "128.0.0.1", "10.0.0.1:5000", "[::2]:80", "127.0.0.1.example"}
    assert {host for host in local | others if Address(host, "a", "1", "").is_local} == local


def auth(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def find(folder: Path, address: str, config: object, **environment: str) -> Credentials | None:
    """Find credentials in a file of docker's."""
    (folder / ".docker").mkdir(exist_ok=True)
    (folder / ".docker/config.json").write_text(json.dumps(config), encoding="utf-8")
    return find_credentials(parse_address(address), {"HOME": str(folder), **environment})


@pytest.mark.parametrize(
    "key", ["r.example:5000", "https://r.example:5000", "https://r.example:5000/v1/", "r.example:5000/team"]
)
def test_credentials_are_found_under_every_key(key: str, tmp_path: Path) -> None:
    config = {"auths": {key: {"auth": auth("ci:a:b")}, "other.example": {"auth": auth("no:no")}}}
    assert find(tmp_path, "oci://r.example:5000/team/k:1", config) == Credentials("ci", "a:b")
    assert find(tmp_path, "oci://r.example/team/k:1", config) is None


def test_the_most_specific_credentials_count(tmp_path: Path) -> None:
    config = {"auths": {"r.example": {"auth": auth("all:x")}, "r.example/team/k": {"auth": auth("k:x")}}}
    found = [find(tmp_path, f"oci://r.example/team/{name}:1", config) for name in ("k", "other")]
    assert [each.user for each in found if each] == ["k", "all"]


def test_docker_hub_has_names_of_its_own(tmp_path: Path) -> None:
    config = {"auths": {"https://index.docker.io/v1/": {"auth": auth("me:x")}}}
    assert find(tmp_path, "oci://docker.io/me/k:1", config) == Credentials("me", "x")


def test_variables_and_files_count_in_order(tmp_path: Path) -> None:
    config = {"auths": {"r.example": {"auth": auth("docker:x")}}}
    more = tmp_path / "auth.json"
    more.write_text(json.dumps({"auths": {"r.example": {"auth": auth("podman:x")}}}), encoding="utf-8")
    for environment, user in (
        ({}, "docker"),
        ({"REGISTRY_AUTH_FILE": str(more)}, "podman"),
        ({"REGISTRY_AUTH_FILE": str(more), "ORAS_USER": "oras", "ORAS_PASS": "x"}, "oras"),
        ({"DOCKER_CONFIG": str(tmp_path / "none")}, ""),
    ):
        found = find(tmp_path, "oci://r.example/k:1", config, **environment)
        assert (found.user if found else "") == user


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("{", "no JSON"),
        ({"auths": {"r.example": {"auth": "s3cret!"}}}, "no base64"),
        ({"auths": {"r.example": {"auth": auth("s3cret")}}}, "without user and password"),
        ({"credsStore": "../s3cret"}, "name has other characters"),
        ({"credHelpers": {"r.example": "not-installed"}}, "docker-credential-not-installed"),
    ],
)
def test_files_that_cannot_be_used_are_named_without_their_content(
    config: object, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / ".docker/config.json"
    path.parent.mkdir()
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    with pytest.raises(RegistryError, match=expected) as caught:
        find_credentials(parse_address("oci://r.example/k:1"), {"HOME": str(tmp_path), "PATH": "/bin"})
    assert caught.value.reason == "credentials"
    assert str(path) in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_helpers_are_asked(tmp_path: Path) -> None:
    helper = tmp_path / "docker-credential-test"
    helper.write_text(
        '#!/bin/sh\nread server\ncase "$server" in\n'
        'r.example) echo \'{"ServerURL":"r","Username":"ci","Secret":"x"}\';;\n'
        'token.example) echo \'{"Username":"<token>","Secret":"long"}\';;\n'
        "bad.example) echo oops;;\nlocked.example) echo the keychain is locked; exit 1;;\n"
        "*) echo credentials not found in native keychain; exit 1;;\nesac\n"
    )
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    path = f"{tmp_path}:/usr/bin:/bin"
    found = [
        find(tmp_path, f"oci://{host}.example/k:1", {"credsStore": "test", "auths": {"r.example": {}}}, PATH=path)
        for host in ("r", "token", "other")
    ]
    assert found == [Credentials("ci", "x"), Credentials("", "", "long"), None]
    for host, expected in (("bad", "expected JSON"), ("locked", "got exit code 1")):
        with pytest.raises(RegistryError, match=expected):
            find(tmp_path, f"oci://{host}.example/k:1", {"credHelpers": {f"{host}.example": "test"}}, PATH=path)


def test_secrets_are_not_in_a_repr() -> None:
    assert "hunter2" not in repr(Credentials("me", "hunter2", "hunter2"))
