"""Which locations a warehouse may have, and how files are read and written there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_app.tables.location import Location
from streaming_app.tables.object_store import describe_error
from tests.support.s3_server import s3_server

STORES = [
    "s3a://my.bucket-1/a/b",
    "abfss://container@account.dfs.core.windows.net/a",
    "gs://bucket/a_b/c=1",
    "hdfs://namenode:8020/a",
]


@pytest.mark.parametrize("uri", STORES)
def test_the_uri_of_a_store_is_kept_and_extended(uri: str) -> None:
    location = Location.of(uri + "/")
    assert (str(location), location.is_local) == (uri, False)
    assert str(location / "_jobs" / "a.json") == f"{uri}/_jobs/a.json"
    assert ((location / "a" / "b").parent, (location / "a" / "b").name) == (location / "a", "b")
    assert location.absolute() == location
    assert location.storage_options


@pytest.mark.parametrize(
    ("text", "path"), [("dir", "dir"), ("/a/b/", "/a/b"), ("a:b", "a:b"), ("file:///with%20space", "/with space")]
)
def test_a_path_and_a_file_uri_are_local(text: str, path: str) -> None:
    location = Location.of(text)
    assert (location.path, location.is_local, location.storage_options) == (Path(path), True, None)
    assert location.absolute().path == Path(path).absolute()
    assert location == Location.of(Path(path))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("s3://bucket/a", "must be .*://"),
        ("s3a://key:secret@bucket/a", "must be .*://"),
        ("s3a://bucket/a%20b", "must be .*://"),
        ("s3a://bucket/../a", "must be .*://"),
        ("ftp://host/a", "must be .*://"),
        ("/data/a%20b", 'must not contain "%20"'),
        ("file:///data/a%2520b", 'must not contain "%20"'),
    ],
)
def test_what_spark_and_delta_rs_do_not_both_read_as_one_place_is_rejected(text: str, line: str) -> None:
    with pytest.raises(ValueError, match=f"^{line}"):
        Location.of(text)


@pytest.mark.parametrize(
    ("message", "line"),
    [
        (
            "Kernel error -> Generic S3 error\n    \x1b[31m↳\x1b[0m Error performing GET http://127.0.0.1:1/b/x in 1ms "
            "after 4 retries, max_retries\n    \x1b[31m↳\x1b[0m 4, retry_timeout\n  30s  - HTTP error\n client error "
            "(Connect)\n  \x1b[31m↳\x1b[0m tcp connect error\n   \x1b[31m↳\x1b[0m Connection refused (os error 111)\n",
            "http://127.0.0.1:1 does not answer: tcp connect error Connection refused (os error 111)",
        ),
        (
            "Error performing PUT http://host:9/b?list-type=2 in 4ms - Server returned non-2xx status code\n  404 Not "
            "Found\n<Error><Code>NoSuchBucket</Code><Message>The specified bucket does not exist</Message></Error>",
            "http://host:9 returned NoSuchBucket: The specified bucket does not exist",
        ),
        (
            "PUT http://169.254.169.254/latest/api/token denied",
            "no credentials: credentials come from environment variables",
        ),
        (
            "RPC error: Exception\nPermission denied: user=alice\n\tat org.apache.A$1.b(A.java:661)\n\tat x",
            "RPC error: Exception Permission denied: user=alice",
        ),
    ],
)
def test_an_error_of_a_store_is_one_line(message: str, line: str) -> None:
    assert describe_error(OSError(message)).startswith(line)
    assert ".java" not in describe_error(OSError(message))


@pytest.fixture(params=["local", "store"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Location]:
    if request.param == "local":
        yield Location.of(tmp_path)
        return
    with s3_server(tmp_path, monkeypatch.setenv) as server:
        yield Location.of(server.uri("warehouse"))


def test_the_text_that_was_written_last_is_found_until_the_file_is_removed(warehouse: Location) -> None:
    file = warehouse / "_jobs" / "a.json"
    assert file.find_text() is None
    for text in ("ü" * 10_000, "short"):
        file.write_text(text)
        assert file.find_text() == text
    assert file.parent.names() == ["a.json"]
    for _ in range(2):
        file.remove()
        assert (file.parent.names(), file.find_text()) == ([], None)


def test_a_directory_is_removed_with_its_contents_and_nothing_else(warehouse: Location) -> None:
    checkpoint, other = warehouse / "_checkpoints" / "default", warehouse / "_checkpoints" / "default~offsets"
    for file in (checkpoint / "commits" / "0", checkpoint / "metadata", other / "metadata"):
        file.write_text("v1")
    assert sorted(checkpoint.names()) == ["commits", "metadata"]
    for _ in range(2):
        checkpoint.remove_directory()
        assert (checkpoint.names(), other.names()) == ([], ["metadata"])
